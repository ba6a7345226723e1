// Package park lets a handler that waits for long wait on a small stack.
//
// gRPC gives each stream a goroutine, and that keeps the stack which its handler has
// needed at the most. A subscription passes a chain to begin, some thirty frames, and then
// waits for hours: 8 KiB for each of thousands, of which half would do. So another
// goroutine passes the chain, and leaves what is to be waited for at a place where the
// handler finds it.
//
// What is promised: who waits without a place waits where it stands. Whoever asked to be
// told of the end is told of it once, the last who asked first, as deferred calls are. The
// owner of a place has to wait, also if the call has failed after all: then with a context
// that has ended, so that what was left is given up.
package park

import (
	"context"
	"slices"
)

// Place is where something to be waited for is left. It is used by one goroutine at a
// time.
type Place struct {
	wait func(context.Context) error
	then []func(error)
}

type placeKey struct{}

// With has those who wait in the context leave it at the place.
func With(ctx context.Context) (context.Context, *Place) {
	p := new(Place)
	return context.WithValue(ctx, placeKey{}, p), p
}

func from(ctx context.Context) *Place {
	p, _ := ctx.Value(placeKey{}).(*Place)
	return p
}

// Wait returns when wait does, with its error; or at once, and it is waited for later. It
// is called once, and has to return when its context ends.
func Wait(ctx context.Context, wait func(context.Context) error) error {
	p := from(ctx)
	if p == nil {
		return wait(ctx)
	}
	p.wait = wait
	return nil
}

// Then calls f with the error, which is what a call that may have left something has
// returned; or later, with how that has ended.
func Then(ctx context.Context, err error, f func(error)) {
	if p := from(ctx); p != nil && p.wait != nil && err == nil {
		p.then = append(p.then, f)
		return
	}
	f(err)
}

// Wait waits for what was left, if anything was, until ctx ends at the latest.
func (p *Place) Wait(ctx context.Context) error {
	if p.wait == nil {
		return nil
	}
	err := p.wait(ctx)
	for _, f := range slices.Backward(p.then) {
		f(err)
	}
	return err
}
