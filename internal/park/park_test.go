package park_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/park"
)

var errEnd = errors.New("the end")

// call is a chain of two elements that want to know of the end, before one that waits.
func call(ctx context.Context, told *[]string, wait func(context.Context) error) error {
	inner := func() (err error) {
		defer func() { park.Then(ctx, err, func(err error) { *told = append(*told, "inner: "+err.Error()) }) }()
		return park.Wait(ctx, wait)
	}
	err := inner()
	park.Then(ctx, err, func(err error) { *told = append(*told, "outer: "+err.Error()) })
	return err
}

func TestWithoutAPlaceItIsWaitedForAtOnce(t *testing.T) {
	t.Parallel()
	var told []string
	require.ErrorIs(t, call(t.Context(), &told, func(context.Context) error { return errEnd }), errEnd)
	require.Equal(t, []string{"inner: the end", "outer: the end"}, told)
}

func TestWithAPlaceItIsWaitedForThere(t *testing.T) {
	t.Parallel()
	var told []string
	waited := 0
	ctx, place := park.With(t.Context())
	require.NoError(t, call(ctx, &told, func(context.Context) error { waited++; return errEnd }))
	require.Zero(t, waited)
	require.Empty(t, told, "it has not ended")
	require.ErrorIs(t, place.Wait(t.Context()), errEnd)
	require.Equal(t, 1, waited)
	require.Equal(t, []string{"outer: the end", "inner: the end"}, told, "the last who asked is told first")
}

func TestOfWhatHasFailedNothingIsLeft(t *testing.T) {
	t.Parallel()
	var told error
	ctx, place := park.With(t.Context())
	park.Then(ctx, errEnd, func(err error) { told = err })
	require.ErrorIs(t, told, errEnd)
	require.NoError(t, place.Wait(t.Context()))

	told = nil
	_ = park.Wait(ctx, func(context.Context) error { return nil })
	park.Then(ctx, errEnd, func(err error) { told = err })
	require.ErrorIs(t, told, errEnd, "what failed after it had left something is told of at once")
}
