package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// values has flags, the environment and the configuration file read durations and
// numbers alike: a duration has a unit, and nothing is negative.
func values() []kong.Option {
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
		kong.KindMapper(reflect.Int, kong.MapperFunc(readCount)),
		kong.KindMapper(reflect.Int64, kong.MapperFunc(readCount)),
		kong.KindMapper(reflect.Float64, kong.MapperFunc(readRate)),
	}
}

// tagLeast is the tag of a duration that says how long it is at least, if it is
// not 0.
const tagLeast = "least"

func readDuration(ctx *kong.DecodeContext, into reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := yamldoc.ParseDuration(fmt.Sprint(token.Value))
	if err == nil {
		err = longEnough(d, ctx.Value.Tag)
	}
	if err != nil {
		return err
	}
	into.SetInt(int64(d))
	return nil
}

// longEnough says what is wrong with a duration that is too short for its flag.
func longEnough(d time.Duration, tag *kong.Tag) error {
	least, err := yamldoc.ParseDuration(tag.Get(tagLeast))
	if err != nil || d == 0 || d >= least {
		return nil
	}
	return fmt.Errorf("must be at least %s, not %s", tag.Get(tagLeast), d)
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

// checkValue holds a value of the configuration file against the type of its flag, so
// that what is wrong with it is told at its place.
func checkValue(part *yamldoc.Document, flag *kong.Flag) error {
	into := reflect.New(flag.Target.Type())
	if _, is := into.Interface().(*authFlag); is {
		return nil // it is read at its place
	}
	if into.Elem().Kind() == reflect.Slice && part.IsText() {
		return nil // one element, as in a flag
	}
	if faults := part.Decode(into.Interface()); len(faults) > 0 {
		return yamldoc.Errors(faults)
	}
	if d, ok := into.Elem().Interface().(time.Duration); ok {
		if err := longEnough(d, flag.Tag); err != nil {
			return part.Fault(configKey(flag)+": "+err.Error(), "")
		}
	}
	return nil
}
