package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/settings"
	"github.com/splitnic/splitnic/internal/statussock"
)

// bugReport is what `splitnic doctor --report` writes.
type bugReport struct {
	config  string                   // directory of configuration files
	proc    string                   // /proc
	sockets func() ([]string, error) // of the processes to ask
	doctor  report
}

// write creates the file, which only its owner can read. It does not overwrite an existing file.
func (b *bugReport) write(ctx context.Context, path string) error {
	text := b.text(ctx)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		if errors.Is(err, os.ErrExist) {
			return exit.Usagef("--report %s: must be a new file", path)
		}
		return fmt.Errorf("--report: %w", err)
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

func (b *bugReport) text(ctx context.Context) string {
	var out bytes.Buffer
	section := func(title, text string) {
		fmt.Fprintf(&out, "==== %s\n%s\n\n", title, strings.TrimRight(text, "\n"))
	}
	section("splitnic", fmt.Sprintf("version %s, %s", version, time.Now().UTC().Format(time.RFC3339)))
	if info, ok := debug.ReadBuildInfo(); ok {
		section("build", info.GoVersion+" "+info.Main.Path)
	}
	for _, f := range []struct {
		name string
		part *regexp.Regexp // matches the relevant parts; nil for all
	}{{"version", nil}, {"cmdline", parameters}, {"modules", modules}, {"meminfo", memory}, {"self/limits", nil}} {
		section("/proc/"+f.name, read(filepath.Join(b.proc, f.name), f.part))
	}
	section("/etc/os-release", read("/etc/os-release", nil))
	section("splitnic doctor", b.doctor.text())
	section("netdevices", netdevices())
	section("processes", b.processes())
	b.configuration(section)
	b.status(ctx, section)
	return scrub(out.String())
}

// The relevant parts of files in /proc: kernel parameters, modules, and memory.
var (
	parameters = regexp.MustCompile(
		`(?:intel_|amd_)?iommu\S*|isolcpus=\S*|nohz_full=\S*|mitigations=\S*|\S*hugepage\S*|pci=\S*`)
	modules = regexp.MustCompile(
		`(?m)^(?:ib_|rdma|rxe|siw|mlx|irdma|bnxt|qedr|efa|erdma|tun|tap|macv|vhost|bond)\S* .*`)
	memory = regexp.MustCompile(`(?m)^(?:Mem|Mlocked|HugePages|Hugepagesize).*`)
)

// read returns the content of a file, only the matches of part if it is not nil, or the error.
func read(path string, part *regexp.Regexp) string {
	text, err := os.ReadFile(path)
	switch {
	case err != nil:
		return err.Error()
	case part != nil:
		return strings.Join(part.FindAllString(string(text), -1), "\n")
	}
	return string(text)
}

// netdevices lists the netdevices, as `ip -br link` and `ip -br address` do.
func netdevices() string {
	links, err := netlink.LinkList()
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, l := range links {
		a := l.Attrs()
		fmt.Fprintf(&b, "%d %s %s %v mtu %d %v master %d %v", a.Index, a.Name, l.Type(), a.HardwareAddr, a.MTU, a.OperState,
			a.MasterIndex, a.Flags)
		if ifi, err := net.InterfaceByIndex(a.Index); err == nil {
			if addrs, err := ifi.Addrs(); err == nil {
				fmt.Fprintf(&b, " %v", addrs)
			}
		}
		if s := a.Statistics; s != nil {
			fmt.Fprintf(&b, "\n    rx %d frames %d bytes %d errors %d dropped; tx %d frames %d bytes %d errors %d dropped",
				s.RxPackets, s.RxBytes, s.RxErrors, s.RxDropped, s.TxPackets, s.TxBytes, s.TxErrors, s.TxDropped)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// processes returns the command lines of splitnic's processes.
func (b *bugReport) processes() string {
	var all strings.Builder
	for pid, args := range commandLines(b.proc) {
		fmt.Fprintf(&all, "%s: %s\n", pid, strings.Join(args, " "))
	}
	return all.String()
}

// commandLines yields the process ID and the command line of each of splitnic's processes.
func commandLines(proc string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
		for _, f := range files {
			line, _ := os.ReadFile(f) // none if the process has ended
			args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
			if filepath.Base(args[0]) == "splitnic" && !yield(filepath.Base(filepath.Dir(f)), args) {
				return
			}
		}
	}
}

// configuration adds the settings in each configuration file whose keys are flags. It leaves out
// everything else, such as comments and text that is no setting.
func (b *bugReport) configuration(section func(title, text string)) {
	files, _ := filepath.Glob(filepath.Join(b.config, "*.yaml"))
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			section(path, err.Error())
			continue
		}
		section(path, settingsText(path, text))
	}
}

// settingsText returns the part of a configuration file or policy that is in a report.
func settingsText(path string, text []byte) string {
	body, err := settings.Parse(path, text)
	if err != nil {
		return "left out: it is not YAML"
	}
	entries, ok := settings.Map(body)
	if !ok {
		return "left out: it has no settings"
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(hostFlags).add(flags)
	unit := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(iounitFlags).add(unit)
	flags.AddFlagSet(unit)
	var b strings.Builder
	for _, e := range entries {
		words, err := settings.Scalars(e.Value)
		switch f := flags.Lookup(e.Key); {
		case f == nil:
			fmt.Fprintf(&b, "a key that is no flag: left out\n")
		case err != nil:
			fmt.Fprintf(&b, "%s: left out: %v\n", e.Key, err)
		case (e.Key == "key" || e.Key == "cert" || e.Key == "ca") && strings.ContainsAny(strings.Join(words, ""), "\n "):
			fmt.Fprintf(&b, "%s: left out: it is no path\n", e.Key)
		default:
			fmt.Fprintf(&b, "%s: %q\n", e.Key, words)
		}
	}
	return b.String()
}

func (b *bugReport) status(ctx context.Context, section func(title, text string)) {
	sockets, err := b.sockets()
	if err != nil {
		section("status", err.Error())
	}
	for _, path := range sockets {
		raw, err := statussock.Read(ctx, path)
		if err != nil {
			section("status of "+path, err.Error())
			continue
		}
		var text bytes.Buffer
		if err := json.Indent(&text, raw, "", " "); err != nil {
			text.WriteString(err.Error())
		}
		section("status of "+path, text.String())
	}
}

var (
	secretFlag = regexp.MustCompile(`(--secret[ =])\S+`) // of splitnic bench
	pemBlock   = regexp.MustCompile(`(?s)-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|\z)`)
	// longWord matches words that are at least as long as a key. fingerprint matches those of
	// them that are no secrets.
	longWord    = regexp.MustCompile(`(?:sha256:)?[A-Za-z0-9+/_-]{43,}={0,2}`)
	fingerprint = regexp.MustCompile(`^sha256:[A-Za-z0-9_-]{43}$`)
)

const leftOut = "[left out]"

// scrub removes everything that looks like a key, wherever it comes from.
func scrub(text string) string {
	text = pemBlock.ReplaceAllString(text, leftOut)
	text = secretFlag.ReplaceAllString(text, "${1}"+leftOut)
	return longWord.ReplaceAllStringFunc(text, func(word string) string {
		if fingerprint.MatchString(word) {
			return word
		}
		return leftOut
	})
}
