package policytest

import "reflect"

// RowType is what a test is decoded into.
var RowType = reflect.TypeFor[row]()
