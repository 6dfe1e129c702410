package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// values makes flags, the environment and the configuration file read durations and
// numbers alike. A duration needs a unit, nothing is negative, and some values must
// not be 0.
func values() []kong.Option {
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
		kong.KindMapper(reflect.Int, kong.MapperFunc(readCount)),
		kong.KindMapper(reflect.Int64, kong.MapperFunc(readCount)),
		kong.KindMapper(reflect.Float64, kong.MapperFunc(readRate)),
	}
}

// tagLeast is the tag with the minimum of a duration that is not 0.
const tagLeast = "least"

// tagSome is the tag of a duration, a count or a size that must be more than 0.
const tagSome = "some"

func readDuration(ctx *kong.DecodeContext, into reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := yamldoc.ParseDuration(fmt.Sprint(token.Value))
	if err == nil {
		err = longEnough(d, ctx.Value)
	}
	if err != nil {
		return err
	}
	into.SetInt(int64(d))
	return nil
}

// longEnough returns the error of a duration below the minimum of its flag.
func longEnough(d time.Duration, of *kong.Value) error {
	if err := some(int64(d), of); err != nil {
		return err
	}
	least, err := yamldoc.ParseDuration(of.Tag.Get(tagLeast))
	if err != nil || d == 0 || d >= least {
		return nil
	}
	return fmt.Errorf("must be at least %s, not %s", of.Tag.Get(tagLeast), d)
}

// some refuses 0 for a flag that has the tag.
func some(n int64, of *kong.Value) error {
	if n == 0 && of.Tag.Has(tagSome) {
		return fmt.Errorf("must be more than 0, as its default %s is", of.Default)
	}
	return nil
}

func readCount(ctx *kong.DecodeContext, into reflect.Value) error {
	token, err := ctx.Scan.PopValue("int")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	n, err := strconv.ParseInt(text, 10, into.Type().Bits())
	if err != nil || n < 0 && text != ctx.Value.Default {
		return fmt.Errorf("must be a whole number from 0, not %q", text)
	}
	if err := some(n, ctx.Value); err != nil {
		return err
	}
	into.SetInt(n)
	return nil
}

func readRate(ctx *kong.DecodeContext, into reflect.Value) error {
	token, err := ctx.Scan.PopValue("float")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return fmt.Errorf("must be a number from 0, not %q", text)
	}
	into.SetFloat(n)
	return nil
}

// checkValue checks a value of the configuration file against its flag, so that the
// error has its place.
func checkValue(part *yamldoc.Document, flag *kong.Flag) []yamldoc.Fault {
	into := reflect.New(flag.Target.Type())
	if document, is := into.Interface().(documentFlag); is {
		return document.read(part)
	}
	if into.Elem().Kind() == reflect.Slice && part.IsText() { // one element, as in a flag
		into = reflect.New(into.Type().Elem().Elem())
	}
	if faults := part.Decode(into.Interface()); len(faults) > 0 {
		return faults
	}
	fault := func(err error, hint string) []yamldoc.Fault {
		return []yamldoc.Fault{part.Fault(configKey(flag)+": "+err.Error(), hint)}
	}
	var err error
	switch value := into.Elem(); {
	case value.Type() == reflect.TypeFor[time.Duration]():
		err = longEnough(time.Duration(value.Int()), flag.Value)
	case value.CanInt():
		err = some(value.Int(), flag.Value)
	case flag.Enum != "" && !flag.EnumMap()[value.String()]:
		known := strings.Split(flag.Enum, ",")
		return fault(fmt.Errorf("must be %s, not %q", strings.Join(known, " or "), value.String()), yamldoc.DidYouMean(value.String(), known))
	}
	if err != nil {
		return fault(err, "")
	}
	return nil
}
