package guard

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The caller's token and its expiry, as the SDK's credentials send them with each
// call. They take the place of those that the message has for the hop before us, so
// they have to keep to the same limits.
const (
	tokenHeader   = "nsm-client-token" //nolint:gosec // the name of a header
	expiresHeader = "nsm-client-token-expires"
)

// checkCall looks at what came with a Request or Close. Neighbours without tokens
// send neither.
func checkCall(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	tokens, times := md.Get(tokenHeader), md.Get(expiresHeader)
	if len(tokens) > 1 || len(times) > 1 {
		return faulty("header "+tokenHeader, "more than one")
	}
	for _, token := range tokens {
		if err := jwt("header "+tokenHeader, token); err != nil {
			return err
		}
	}
	for _, value := range times {
		expires, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return faulty("header "+expiresHeader, "not a time")
		}
		if err := expiry("header "+expiresHeader, timestamppb.New(expires)); err != nil {
			return err
		}
	}
	return nil
}
