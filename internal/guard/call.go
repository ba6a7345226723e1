package guard

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TokenHeader and ExpiresHeader carry the caller's token and its expiry, as the SDK's
// credentials send them with each call. They take the place of those that the message
// has for the hop before us, so they have to keep to the same limits.
const (
	TokenHeader   = "nsm-client-token" //nolint:gosec // the name of a header
	ExpiresHeader = "nsm-client-token-expires"
)

// checkCall looks at what came with a Request or Close, or a registration. Neighbours without tokens
// send neither.
func checkCall(ctx context.Context) error {
	tokens, times := metadata.ValueFromIncomingContext(ctx, TokenHeader), metadata.ValueFromIncomingContext(ctx, ExpiresHeader)
	if len(tokens) > 1 || len(times) > 1 {
		return faulty("header "+TokenHeader, "more than one")
	}
	for _, token := range tokens {
		if err := jwt("header "+TokenHeader, token); err != nil {
			return err
		}
	}
	for _, value := range times {
		expires, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return faulty("header "+ExpiresHeader, "not a time")
		}
		if err := expiry("header "+ExpiresHeader, timestamppb.New(expires)); err != nil {
			return err
		}
	}
	return nil
}
