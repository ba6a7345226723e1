//go:build sdksuitedeps

// This file is never compiled. The suite's imports are invisible to go mod
// tidy, because they are not in the tree; these keep in go.mod and go.sum what
// nothing else here needs.

package sdksuite

import (
	_ "github.com/edwarnicke/genericsync"
	_ "github.com/golang/protobuf/ptypes/empty"
	_ "github.com/networkservicemesh/sdk/pkg/networkservice/connectioncontext/dnscontext/vl3dns"
)
