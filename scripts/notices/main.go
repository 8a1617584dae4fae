// Command notices writes what the licences of the linked modules require to be handed on with the
// programs.
//
//	notices FILE [BILL...]
//
// FILE gets the licences and notices of all modules that are linked into splitnic and splitnic-cni,
// with those of code that they have copied from others. Each BILL is a bill of materials
// (CycloneDX, JSON), whose components get the names of their licences. It runs in the checkout, and
// needs the modules' sources.
package main

import (
	"fmt"
	"os"
)

// programs are the packages that are distributed.
var programs = []string{"./cmd/splitnic", "./cmd/splitnic-cni"}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: notices FILE [BILL...]")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func write(file string, bills []string) error {
	linked, err := list(programs)
	if err != nil {
		return err
	}
	var all []module
	for _, l := range linked {
		m, err := l.read()
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	if err := os.WriteFile(file, []byte(document(all)), 0o644); err != nil {
		return err
	}
	names := map[string][]string{}
	for _, m := range all {
		if names[m.path], err = m.licences(); err != nil {
			return err
		}
	}
	for _, bill := range bills {
		text, err := os.ReadFile(bill)
		if err != nil {
			return err
		}
		if text, err = fill(text, names); err != nil {
			return fmt.Errorf("%s: %w", bill, err)
		}
		if err := os.WriteFile(bill, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
