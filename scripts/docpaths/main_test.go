package main

import (
	"strings"
	"testing"
)

// TestCheck checks a document with one sentence or block at a time.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"[a](b.md) and [b](b.md#two-words-and-code)":      "",
		"![a picture\nof it](../pictures/a.svg)":          "",
		"[a](https://example.org/x.md) [b](mailto:a@b.c)": "",
		"[a](#here)\n\n# Here":                            "",
		"[one](#one) [again](#one-1)\n# One\n## One\n":    "",
		"[a](gone.md)":                                  "docs/a.md:1: the link leads to docs/gone.md, which is not there",
		"\n[two\nlines](gone.md#x)":                     "docs/a.md:3: the link leads to docs/gone.md, which is not there",
		"é [a](b.md#gone)":                              "docs/a.md:1: docs/b.md has no heading #gone",
		"[a](#gone)":                                    "docs/a.md:1: docs/a.md has no heading #gone",
		"[a]\n\n[a]: gone.md":                           "docs/a.md:3: the link leads to docs/gone.md, which is not there",
		"`not [a](gone.md) link`":                       "",
		"`src/pkg/x.go`, `pkg/x.go`, `x.go`, `src/pkg`": "",
		"`src/pkg/*.go`, `./src/...`, `b.md`":           "",
		"`src/gone`":                                    "docs/a.md:1: there is no src/gone in the checkout",
		"`src/pkg/*.yaml`":                              "docs/a.md:1: there is no src/pkg/*.yaml in the checkout",
		"`other/x.go`":                                  "docs/a.md:1: there is no other/x.go in the checkout",
		"`kg/x.go`":                                     "docs/a.md:1: there is no kg/x.go in the checkout",
		"`gone.md`":                                     "docs/a.md:1: there is no gone.md in the checkout",
		"`/etc/x.go`, `build/x/results.md`, `src <gone>`, `a/b`, `host.yaml`": "",
		"```\n[a](gone.md) `src/gone`\n```":                                   "",
		"```json\n{\"a\": [1, 2]}\n{}\n```":                                   "",
		"  ```json\n  {\"a\": 1}\n  ```":                                      "",
		"\n```json\n{\"a\": 1,}\n```":                                         "docs/a.md:2: the block is no JSON: invalid character",
		"\n```json name\n{1}\n```":                                            "docs/a.md:2: the block is no JSON: invalid character",
		"```json\n```":                                                        "docs/a.md:1: the block is no JSON: EOF",
		"```json\n{\"a\": …}\n```":                                            "docs/a.md:1: the block is no JSON: invalid character",
		"# `code` and a [link](b.md)\n[x](#code-and-a-link)":                  "",
	} {
		tr := newTree()
		for _, file := range []string{"docs/a.md", "docs/b.md", "pictures/a.svg", "src/pkg/x.go"} {
			tr.add(file)
		}
		tr.texts["docs/a.md"], tr.headings["docs/a.md"] = text, headings(text)
		tr.headings["docs/b.md"] = headings("# Two words, and `code`\n")
		got := strings.Join(tr.check("docs/a.md"), "\n")
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q: %q, and not %q", text, got, want)
		}
	}
}
