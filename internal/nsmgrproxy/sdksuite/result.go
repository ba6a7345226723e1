package sdksuite

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Outcomes of a test, as the go command says them.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Result is what one test of the suite came to.
type Result struct {
	Outcome string // Pass, Fail or Skip
	Seconds float64
	Output  string
}

// logLine matches the lines that the SDK's loggers print, up to thousands in
// one failed test.
var logLine = regexp.MustCompile(`(?m)^.*\[(TRAC|DEBU|INFO|WARN|ERRO|FATA)[A-Z]*\].*\n`)

// Brief is the output without the SDK's log.
func (r Result) Brief() string {
	return logLine.ReplaceAllString(r.Output, "")
}

type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64
}

// parse sorts the output of go test -json by top-level test. A test that
// started and never ended has a Result without an outcome. What belongs to no
// test, such as the compiler's words, is returned apart.
func parse(out []byte) (results map[string]Result, rest string) {
	results = make(map[string]Result)
	var other strings.Builder
	for line := range bytes.Lines(out) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			other.Write(line)
			continue
		}
		if e.Test == "" {
			other.WriteString(e.Output)
			continue
		}
		name, _, isSub := strings.Cut(e.Test, "/")
		result := results[name]
		result.Output += e.Output
		if !isSub && (e.Action == Pass || e.Action == Fail || e.Action == Skip) {
			result.Outcome, result.Seconds = e.Action, e.Elapsed
		}
		results[name] = result
	}
	return results, other.String()
}

// troubled is what the tests printed that failed or never ended.
func troubled(results map[string]Result) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if result := results[name]; result.Outcome == Fail || result.Outcome == "" {
			out.WriteString(result.Output)
		}
	}
	return out.String()
}
