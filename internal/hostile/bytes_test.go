package hostile_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

// spoilBytes returns inputs that are wrong below the fields: cut short, changed
// in some bits, and nothing but noise. The same seed gives the same ones.
func spoilBytes(t *testing.T, c call, seed uint64) []*input {
	random := rand.New(rand.NewPCG(seed, 1))
	good := wireOf(t, c.good)
	var inputs []*input
	add := func(fault string, wire []byte) {
		inputs = append(inputs, &input{method: c.method, fault: fault, wire: wire})
	}
	add("nothing at all", nil)
	for range 8 {
		noise := make([]byte, 1+random.IntN(200))
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		add("noise", noise)
		if len(good) > 1 {
			add("cut short", good[:1+random.IntN(len(good)-1)])
			flipped := bytes.Clone(good)
			for range 1 + random.IntN(4) {
				flipped[random.IntN(len(good))] ^= 1 << random.IntN(8)
			}
			add("bits changed", flipped)
		}
	}
	add("a length past the end", append([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, good...))
	add("groups without an end", bytes.Repeat([]byte{0x0b}, 20_000))
	return inputs
}

// spoilHeaders returns good messages with bad headers: the tokens of all calls,
// and the path that registries pass in them.
func spoilHeaders(t *testing.T, c call) []*input {
	var inputs []*input
	add := func(fault string, header metadata.MD) {
		inputs = append(inputs, &input{method: c.method, fault: fault, wire: wireOf(t, c.good), header: header})
	}
	const token, expires = "nsm-client-token", "nsm-client-token-expires"
	add(tokenHeader+"no JWT", metadata.Pairs(token, "x", expires, "2100-01-01T00:00:00Z"))
	add(tokenHeader+"no time", metadata.Pairs(token, "a.b.c", expires, "never"))
	add(tokenHeader+"year 9999", metadata.Pairs(token, "a.b.c", expires, "9999-12-31T23:59:59Z"))
	add(tokenHeader+"twice", metadata.Pairs(token, "a.b.c", token, "a.b.c"))
	add(tokenHeader+"12 KiB", metadata.Pairs(token, strings.Repeat("x", 12<<10)))
	if !strings.HasPrefix(c.method, endpointRegistry) && !strings.HasPrefix(c.method, serviceRegistry) {
		return inputs
	}
	for _, path := range []string{
		"", "null", "[]", "{", "0", `{"Index":-1}`, `{"Index":4294967295}`, `{"Index":9,"PathSegments":[{}]}`,
		`{"PathSegments":null}`, `{"PathSegments":[null]}`, `{"PathSegments":[{},null]}`, `{"PathSegments":[{},{},null]}`,
		`{"Index":1,"PathSegments":[null,null]}`, `{"Index":1,"PathSegments":[null,{"token":"x"}]}`,
		`{"PathSegments":[` + strings.Repeat("{},", many) + `{}]}`, strings.Repeat("[", 10_000),
	} {
		add(pathHeader+path[:min(len(path), 40)], metadata.Pairs("path", path))
	}
	return inputs
}
