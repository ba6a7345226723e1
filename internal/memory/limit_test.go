package memory

import (
	"math"
	"os"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestGroupLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing": {nil, 0},
		"version 2, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "104857600\n"}, 100 << 20},
		"version 2, no limit": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, the parent's is lower": {map[string]string{
			"proc/self/cgroup": "0::/pod/container\n", "sys/fs/cgroup/pod/container/memory.max": "2097152",
			"sys/fs/cgroup/pod/memory.max": "1048576", "sys/fs/cgroup/memory.max": "max"}, 1 << 20},
		"version 2, a path from outside the namespace": {map[string]string{
			"proc/self/cgroup": "0::/../kubepods/x\n", "sys/fs/cgroup/memory.max": "1048576"}, 1 << 20},
		"version 1": {map[string]string{
			"proc/self/cgroup": "5:cpu,memory:/pod\n0::/\n",
			"sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "104857600",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712"}, 100 << 20},
		"version 1, no limit": {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 0},
		"no number":           {map[string]string{"sys/fs/cgroup/memory.max": "much"}, 0},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, groupLimit(root), name)
	}
}

func TestLimit_LeavesWhoHasSetItAlone(t *testing.T) {
	was := debug.SetMemoryLimit(9 << 20)
	defer debug.SetMemoryLimit(was)
	t.Setenv("GOMEMLIMIT", "9MiB")
	require.EqualValues(t, 10<<20, Limit(), "its share is nine tenths")
	require.EqualValues(t, 9<<20, debug.SetMemoryLimit(-1))
	t.Setenv("GOMEMLIMIT", "off")
	debug.SetMemoryLimit(math.MaxInt64)
	require.Equal(t, groupLimit(os.DirFS("/")), Limit())
	require.EqualValues(t, math.MaxInt64, debug.SetMemoryLimit(-1))
}

func TestLimit_IsThatOfTheControlGroup(t *testing.T) {
	was := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(was)
	t.Setenv("GOMEMLIMIT", "")
	want := int64(math.MaxInt64)
	if limit := Limit(); limit > 0 {
		want = int64(share * float64(limit))
	}
	require.Equal(t, want, debug.SetMemoryLimit(-1))
}

func TestCollectEarlier(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	t.Setenv("GOGC", "100")
	CollectEarlier()
	require.Equal(t, 100, debug.SetGCPercent(100), "who has set it is left alone")
	t.Setenv("GOGC", "")
	CollectEarlier()
	require.Equal(t, growth, debug.SetGCPercent(100))
}
