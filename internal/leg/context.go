package leg

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

type (
	legKey    struct{}
	reasonKey struct{}
	closeKey  struct{}

	patienceKey struct{}
)

type reason int

const (
	inPlace reason = iota + 1
	reselecting
	expired
	abandoned
	handedOver
	closed
	retried
)

func withLeg(ctx context.Context, l *Leg) context.Context {
	return context.WithValue(ctx, legKey{}, l)
}

func withReason(ctx context.Context, r reason) context.Context {
	return context.WithValue(ctx, reasonKey{}, r)
}

// FromContext returns the leg that a Request or Close is about, or nil outside
// of a chain with legs.
func FromContext(ctx context.Context) *Leg {
	l, _ := ctx.Value(legKey{}).(*Leg)
	return l
}

// InPlace tells a Request that Rerequest has sent from one that came from
// downstream.
func InPlace(ctx context.Context) bool { return ctx.Value(reasonKey{}) == inPlace }

// Reselecting tells the Close of the old leg before a new selection from the
// client's own: a new Request for the same connection follows it.
func Reselecting(ctx context.Context) bool { return ctx.Value(reasonKey{}) == reselecting }

// Expired tells a Close because the tokens ran out from the client's own.
func Expired(ctx context.Context) bool { return ctx.Value(reasonKey{}) == expired }

// Retried tells that a Close has been tried before.
func Retried(ctx context.Context) bool { return ctx.Value(reasonKey{}) == retried }

// HandedOver tells a Close that is for this process alone: the far side's leg
// goes on under another connection.
func HandedOver(ctx context.Context) bool { return ctx.Value(reasonKey{}) == handedOver }

// closing tells how far a Close has got.
type closing struct{ begun bool }

func withClosing(ctx context.Context, c *closing) context.Context {
	return context.WithValue(ctx, closeKey{}, c)
}

func withPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, time.Now().Add(closePatience))
}

// Patience is until when a Close may hold its caller.
func Patience(ctx context.Context) time.Time {
	if until, ok := ctx.Value(patienceKey{}).(time.Time); ok {
		return until
	}
	return time.Now().Add(closePatience)
}

// CloseBegun is called by the first element that changes something for a Close.
// One that was refused before leaves the leg as it is.
func CloseBegun(ctx context.Context) {
	if c, ok := ctx.Value(closeKey{}).(*closing); ok {
		c.begun = true
	}
}

// Answered hands over the answer to the current Request as the caller keeps it, UP, so
// that it is kept once. The elements between leave the answer as it is.
func Answered(ctx context.Context, answer packed.Message[*networkservice.Connection]) {
	if l := FromContext(ctx); l != nil {
		l.kept = answer
	}
}

// twice is set on a leg whose first Request may have been carried out twice.
type twice bool

// RequestedTwice says that the far side may have two connections for the current
// leg: its first Request was lost on the way back, and is sent again.
func RequestedTwice(ctx context.Context) { *State[twice](ctx) = true }

// MayHaveGhost tells whether that was so.
func MayHaveGhost(ctx context.Context) bool { return bool(*State[twice](ctx)) }

// State returns what the leg remembers of type T, made at the first use. It
// belongs to whoever handles the current Request or Close: the turn of the leg
// is its lock. It is gone when the leg is, and after a Close for reselection.
// Outside of a chain with legs every call makes a new one.
func State[T any](ctx context.Context) *T {
	l := FromContext(ctx)
	if l == nil {
		return new(T)
	}
	for _, v := range l.memory {
		if v, ok := v.(*T); ok {
			return v
		}
	}
	v := new(T)
	l.memory = append(l.memory, v)
	return v
}
