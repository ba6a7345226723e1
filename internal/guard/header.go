package guard

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"google.golang.org/grpc/metadata"
)

// pathHeader carries the path of a registration, as JSON.
const pathHeader = "path"

// checkPathHeader looks at the path that comes beside a registration. The SDK's
// elements take it as it is, with segments that are null.
func checkPathHeader(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	path, err := pathOf(md)
	if err != nil || path == nil {
		return err
	}
	return checkPathOf(path)
}

// pathOf reads the path as the SDK does. It is nil where there is none.
func pathOf(md metadata.MD) (*grpcmetadata.Path, error) {
	values := md.Get(pathHeader)
	if len(values) == 0 {
		return nil, nil
	}
	var path *grpcmetadata.Path
	if err := json.Unmarshal([]byte(values[len(values)-1]), &path); err != nil {
		return nil, faulty("header path", "not a path in JSON")
	}
	return path, nil
}

func checkPathOf(path *grpcmetadata.Path) error {
	if len(path.PathSegments) > maxSegments {
		return faulty("header path", "%d segments, more than %d", len(path.PathSegments), maxSegments)
	}
	if path.Index > 0 && int64(path.Index) >= int64(len(path.PathSegments)) {
		return faulty("header path", "index %d of %d segments", path.Index, len(path.PathSegments))
	}
	for i, segment := range path.PathSegments {
		field := fmt.Sprintf("header path: segment %d", i)
		if segment == nil {
			return faulty(field, "missing")
		}
		if err := text(field, segment.Token, maxToken); err != nil {
			return err
		}
	}
	return nil
}
