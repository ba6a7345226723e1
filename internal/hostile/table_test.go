package hostile_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"
)

// published is the document with the table, and the line in it after which that begins.
const (
	published = "../../deployments/docs/bad-input.md"
	tableLine = "| fault | tried | answered with |"
)

var update = flag.Bool("update", false, "write the table of "+published)

// table counts what happened to which kind of fault. Whoever reads it does so when all
// has been added.
type table struct {
	head [2]string

	// mu guards the following fields.
	mu    sync.Mutex
	rows  map[string]map[string]int
	count int
}

func newTable(kind, outcome string) *table {
	return &table{head: [2]string{kind, outcome}, rows: make(map[string]map[string]int)}
}

func (t *table) add(kind, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[kind] == nil {
		t.rows[kind] = make(map[string]int)
	}
	t.rows[kind][outcome]++
	t.count++
}

func (t *table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "%s\tcount\t%s\n", t.head[0], t.head[1])
	t.each(func(kind string, sum int, outcomes string) {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\n", kind, sum, outcomes)
	})
	_ = w.Flush()
	return b.String()
}

// markdown is the table as it is published.
func (t *table) markdown() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s\n|---|---|---|\n", tableLine)
	t.each(func(kind string, sum int, outcomes string) {
		_, _ = fmt.Fprintf(&b, "| %s | %d | %s |\n", kind, sum, outcomes)
	})
	_, _ = fmt.Fprintf(&b, "| in all | %d | process ended: 0 |\n", t.count)
	return b.String()
}

func (t *table) each(row func(kind string, sum int, outcomes string)) {
	for _, kind := range slices.Sorted(maps.Keys(t.rows)) {
		sum, parts := 0, []string{}
		for _, outcome := range slices.Sorted(maps.Keys(t.rows[kind])) {
			sum += t.rows[kind][outcome]
			parts = append(parts, fmt.Sprintf("%s %d", outcome, t.rows[kind][outcome]))
		}
		row(kind, sum, strings.Join(parts, ", "))
	}
}

// requirePublished requires that the document says what came out. The table is its end.
func (t *table) requirePublished(tb testing.TB) {
	text, err := os.ReadFile(published)
	require.NoError(tb, err)
	before, _, found := strings.Cut(string(text), tableLine)
	require.True(tb, found, "%s has no table", published)
	if now := before + t.markdown(); *update {
		require.NoError(tb, os.WriteFile(published, []byte(now), 0o600))
	} else {
		require.Equal(tb, now, string(text), "%s is not up to date: run this test with -update", published)
	}
}
