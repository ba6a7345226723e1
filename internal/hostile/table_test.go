package hostile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// table counts what happened to which kind of fault.
type table struct {
	head  [2]string
	rows  map[string]map[string]int
	count int
}

func newTable(kind, outcome string) *table {
	return &table{head: [2]string{kind, outcome}, rows: make(map[string]map[string]int)}
}

func (t *table) add(kind, outcome string) {
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
	for _, kind := range slices.Sorted(maps.Keys(t.rows)) {
		sum, parts := 0, []string{}
		for _, outcome := range slices.Sorted(maps.Keys(t.rows[kind])) {
			sum += t.rows[kind][outcome]
			parts = append(parts, fmt.Sprintf("%s %d", outcome, t.rows[kind][outcome]))
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\n", kind, sum, strings.Join(parts, ", "))
	}
	_ = w.Flush()
	return b.String()
}
