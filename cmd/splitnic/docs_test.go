package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// docLine matches a command line in a block, behind a prompt, an environment or the program
	// that runs it.
	docLine = regexp.MustCompile(`^ {4,}(?:[\w@]+[#$:%] +|sudo +|[A-Z_]+=\S+ +|Exec\w+=-?)*(?:/\S+/)?splitnic ([^\n]+)`)
	// docSpan matches a command line in backquotes, which may go on in the next line.
	docSpan = regexp.MustCompile("`splitnic\\s([^`]+)`")
	// docEnd is where a command line ends: at a remark, or another command.
	docEnd = regexp.MustCompile(`\s+#|\s*[|;&)]`)
	word   = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// TestDocumentedCommands expects each command line of the documents to be of a command that
// exists, with flags that it has.
func TestDocumentedCommands(t *testing.T) {
	var files []string
	for _, dir := range []string{"docs", "contrib", "deploy", "examples"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	blocks, spans := 0, 0
	for _, path := range append(files, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole := strings.ReplaceAll(string(text), "\\\n", " ")
		for line := range strings.Lines(whole) {
			// The demonstration prints its name: splitnic on DEVICE.
			if m := docLine.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "on ") {
				blocks++
				checkDocumented(t, path, m[1])
			}
		}
		for _, m := range docSpan.FindAllStringSubmatch(whole, -1) {
			spans++
			checkDocumented(t, path, m[1])
		}
	}
	if blocks < 40 || spans < 100 {
		t.Errorf("only %d command lines in blocks and %d in the text were found", blocks, spans)
	}
}

// checkDocumented checks a command line of a document, without the name of the program.
func checkDocumented(t *testing.T, path, line string) {
	t.Helper()
	words := strings.Fields(docEnd.Split(line, 2)[0])
	root := rootCommand()
	root.InitDefaultVersionFlag()
	c, rest, err := root.Find(words)
	if err == nil && c.HasAvailableSubCommands() && len(rest) > 0 && word.MatchString(rest[0]) {
		err = unknownCommand(c, rest[0])
	}
	if err != nil {
		t.Errorf("%s: splitnic %s: %v", path, line, err)
		return
	}
	c.InitDefaultHelpFlag()
	for _, w := range rest {
		name, _, _ := strings.Cut(w, "=")
		switch f := documentedFlag(c, name); {
		case !strings.HasPrefix(name, "-") || name == "-" || name == "--":
		case f == nil:
			t.Errorf("%s: splitnic %s: %s has no flag %s", path, line, c.CommandPath(), name)
		case isAdvanced(f):
			t.Errorf("%s: splitnic %s: %s is a key of the configuration file", path, line, name)
		}
	}
}

// documentedFlag returns the flag of c that is written --name or -n, or nil.
func documentedFlag(c *cobra.Command, written string) *pflag.Flag {
	long, isLong := strings.CutPrefix(written, "--")
	for _, flags := range []*pflag.FlagSet{c.Flags(), c.InheritedFlags()} {
		if f := flags.Lookup(long); isLong && f != nil {
			return f
		}
		if short := strings.TrimPrefix(written, "-"); !isLong && len(short) == 1 && flags.ShorthandLookup(short) != nil {
			return flags.ShorthandLookup(short)
		}
	}
	return nil
}
