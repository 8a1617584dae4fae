// Command docpaths checks what Markdown documents say of the checkout. It reads the names of all
// its files from standard input, a line each, checks the documents among them, and prints a line
// for each mistake. Links must lead to a file, and to a heading if they name one. A path in
// backquotes whose first element is at the top of the checkout must exist, and the end of a path
// to a source or document, such as `host/race.go`, must be that of a file. A block of JSON must be
// JSON.
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	t := newTree()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if _, err := os.Stat(lines.Text()); err == nil { // otherwise it was removed, and is still in the index
			t.add(lines.Text())
		}
	}
	documents, wrong := 0, 0
	for _, name := range t.documents() {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		t.headings[name] = headings(string(text))
		t.texts[name] = string(text)
		documents++
	}
	for _, name := range t.documents() {
		for _, mistake := range t.check(name) {
			fmt.Println(mistake)
			wrong++
		}
	}
	if documents == 0 {
		fmt.Println("there are no documents")
	}
	if wrong > 0 || documents == 0 {
		os.Exit(1)
	}
}
