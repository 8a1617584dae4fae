// Package packages has the recipe of the .deb and the .rpm. The unit tests build both and check
// their contents. The tests that begin with TestPackages install the packages in clean roots of
// Debian; see docs/testing.md.
package packages

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

const (
	checkout = "../.."
	version  = "v0.1.0"
	epoch    = "1700000000" // time of the files in packages that are built here
)

// output runs a program, which has to succeed, and returns its output.
func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}

// build builds the packages of the checkout in dir with this umask and time zone, and returns
// the directory of the packages.
func build(t testing.TB, dir, umask, zone string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "packages")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `umask "$1" && exec scripts/packages "$2" "$3" "$4"`, "-", umask,
		version, runtime.GOARCH, out)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "TZ="+zone)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, said)
	}
	return out
}

// read returns the contents of the files in a directory.
func read(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// rpmArch has rpm's name of each architecture.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// TestBuild builds packages and checks their contents. It builds them again in another directory
// and expects the same bytes.
func TestBuild(t *testing.T) {
	testenv.NeedTools(t, "bash", "dpkg-deb", "git", "make", "rpm")
	dir := build(t, checkout, "022", "UTC")
	deb := filepath.Join(dir, "splitnic_0.1.0-1_"+runtime.GOARCH+".deb")
	rpm := filepath.Join(dir, "splitnic-0.1.0-1."+rpmArch[runtime.GOARCH]+".rpm")
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", deb, root)
	program, plugin := filepath.Join(root, "usr/bin/splitnic"), filepath.Join(root, "usr/lib/cni/splitnic-cni")

	t.Run("names", func(t *testing.T) {
		want := []string{"SHA256SUMS", filepath.Base(rpm), filepath.Base(deb), bill("splitnic"), bill("splitnic-cni")}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(read(t, dir))); !slices.Equal(got, want) {
			t.Errorf("there are %q, and not %q", got, want)
		}
	})
	t.Run("version", func(t *testing.T) {
		for _, args := range [][]string{{"version"}, {"--version"}} {
			if got := output(t, program, args...); got != "splitnic version "+version+"\n" {
				t.Errorf("splitnic %q says %q", args, got)
			}
		}
		// Without a command of a runtime, the plugin prints its version on stderr.
		if said, err := exec.Command(plugin).CombinedOutput(); err != nil || !strings.Contains(string(said), version) {
			t.Errorf("the CNI plugin says %q, %v", said, err)
		}
		if got := output(t, "dpkg-deb", "--field", deb, "Version"); got != "0.1.0-1\n" {
			t.Errorf("the .deb has version %q", got)
		}
		if got := output(t, "rpm", "--query", "--queryformat", "%{VERSION}-%{RELEASE}", "--package", rpm); got != "0.1.0-1" {
			t.Errorf("the .rpm has version %q", got)
		}
	})
	t.Run("contents", func(t *testing.T) { contents(t, root, deb, rpm) })
	t.Run("libraries", func(t *testing.T) { libraries(t, program, deb, rpm) })
	t.Run("hardening", func(t *testing.T) { hardening(t, program) })
	t.Run("scripts", func(t *testing.T) {
		said := output(t, "rpm", "--query", "--scripts", "--package", rpm)
		control := t.TempDir()
		output(t, "dpkg-deb", "--control", deb, control)
		for _, name := range []string{"postinst", "prerm", "postrm"} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			inDeb, err := os.ReadFile(filepath.Join(control, name))
			if err != nil || !bytes.Equal(inDeb, text) {
				t.Errorf("the .deb does not have %s: %v", name, err)
			}
			if !strings.Contains(said, string(bytes.TrimSpace(text))) {
				t.Errorf("the .rpm does not have %s:\n%s", name, said)
			}
		}
	})
	t.Run("materials", func(t *testing.T) { materials(t, dir, program, plugin) })
	t.Run("again", func(t *testing.T) {
		elsewhere := filepath.Join(t.TempDir(), "another")
		output(t, "bash", "-c", `mkdir -p "$1/build" && cd "$2" && ln -s "$PWD/build/tools" "$1/build/tools" &&
			git -c safe.directory="*" ls-files -coz --exclude-standard | tar -c --null -T - | tar -x -C "$1"`, "-", elsewhere, checkout)
		first, second := read(t, dir), read(t, build(t, elsewhere, "077", "Pacific/Chatham"))
		for name, text := range first {
			if !bytes.Equal(second[name], text) {
				t.Errorf("%s has other bytes when it is built elsewhere", name)
			}
		}
	})
}

// contents compares the files that both packages install with those that they must have.
func contents(t *testing.T, root, deb, rpm string) {
	configuration := []string{
		"/etc/splitnic/agent.yaml", "/etc/splitnic/hosts", "/etc/splitnic/iounit.yaml", "/etc/splitnic/iounits",
		"/etc/splitnic/sn0.yaml",
	}
	want := append([]string{
		"/opt/cni/bin/splitnic-cni", "/usr/bin/splitnic", "/usr/lib/cni/splitnic-cni",
		"/usr/lib/modules-load.d/splitnic.conf",
		"/usr/lib/systemd/system/splitnic-agent.service", "/usr/lib/systemd/system/splitnic-host@.service",
		"/usr/lib/systemd/system/splitnic-iounit.service", "/usr/share/bash-completion/completions/splitnic",
		"/usr/share/doc/splitnic/changelog.gz", "/usr/share/fish/vendor_completions.d/splitnic.fish",
		"/usr/share/splitnic/grafana/splitnic.json", "/usr/share/splitnic/prometheus/alerts.yaml",
	}, configuration...)
	for name := range read(t, filepath.Join(checkout, "examples/config")) {
		want = append(want, "/usr/share/doc/splitnic/examples/"+name)
	}
	pages := t.TempDir()
	output(t, filepath.Join(root, "usr/bin/splitnic"), "man", pages)
	for name := range read(t, pages) {
		want = append(want, "/usr/share/man/man8/"+strings.TrimSuffix(name, ".md")+".gz")
	}
	want = append(want, "/usr/share/man/man8/splitnic-cni.8.gz", "/usr/share/man/man5/splitnic-policy.5.gz",
		"/usr/share/man/man5/splitnic-trust.5.gz", "/usr/share/doc/splitnic/splitnic.cdx.json.gz",
		"/usr/share/doc/splitnic/splitnic-cni.cdx.json.gz")
	for _, c := range []struct {
		name, list string
		own        []string
	}{
		{"deb", output(t, "dpkg-deb", "--contents", deb),
			[]string{"/usr/share/doc/splitnic/THIRD-PARTY-NOTICES.gz", "/usr/share/doc/splitnic/changelog.Debian.gz",
				"/usr/share/doc/splitnic/copyright", "/usr/share/lintian/overrides/splitnic",
				"/usr/share/zsh/vendor-completions/_splitnic"}},
		{"rpm", output(t, "rpm", "--query", "--list", "--verbose", "--package", rpm),
			[]string{"/usr/share/licenses/splitnic/LICENSE", "/usr/share/licenses/splitnic/THIRD-PARTY-NOTICES",
				"/usr/share/zsh/site-functions/_splitnic"}},
	} {
		var got []string
		for line := range strings.Lines(c.list) {
			fields := strings.Fields(line)
			mode, path := fields[0], strings.TrimPrefix(fields[len(fields)-1], ".")
			if mode[0] == 'l' { // NAME -> TARGET
				if path != "/usr/lib/cni/splitnic-cni" {
					t.Errorf("the .%s has a link to %s", c.name, path)
				}
				// Another mode would be that of a file on this machine. rpm's links have none.
				if c.name == "deb" && mode != "lrwxrwxrwx" {
					t.Errorf("the .%s has a link with mode %s", c.name, mode)
				}
				got = append(got, strings.TrimPrefix(fields[len(fields)-3], "."))
				continue
			}
			if !strings.Contains(line, "root") && !strings.Contains(line, " 0/0 ") {
				t.Errorf("the .%s has files of somebody: %s", c.name, line)
			}
			if strings.HasPrefix(mode, "d") {
				if mode != "drwxr-xr-x" {
					t.Errorf("the .%s has the directory %s with mode %s", c.name, path, mode)
				}
				continue
			}
			expected := "-rw-r--r--"
			if path == "/usr/bin/splitnic" || path == "/usr/lib/cni/splitnic-cni" {
				expected = "-rwxr-xr-x"
			}
			if mode != expected {
				t.Errorf("the .%s has %s with mode %s", c.name, path, mode)
			}
			got = append(got, path)
		}
		expected := slices.Sorted(slices.Values(append(slices.Clone(want), c.own...)))
		if slices.Sort(got); !slices.Equal(got, expected) {
			t.Errorf("the .%s has %q, and not %q", c.name, got, expected)
		}
	}
	if got := strings.Fields(output(t, "dpkg-deb", "--info", deb, "conffiles")); !slices.Equal(got, configuration) {
		t.Errorf("dpkg keeps what is written in %q, and not in %q", got, configuration)
	}
	var kept []string // configuration (flag c) that an upgrade does not replace (flag n)
	flags := output(t, "rpm", "--query", "--queryformat", `[%{FILEFLAGS:fflags} %{FILENAMES}\n]`, "--package", rpm)
	for line := range strings.Lines(flags) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "cn "); ok {
			kept = append(kept, path)
		}
	}
	if slices.Sort(kept); !slices.Equal(kept, configuration) {
		t.Errorf("rpm keeps what is written in %q, and not in %q:\n%s", kept, configuration, flags)
	}
	for _, unit := range []string{"splitnic-agent.service", "splitnic-host@.service", "splitnic-iounit.service"} {
		text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", unit))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("\nExecStart=/usr/bin/splitnic ")) {
			t.Errorf("%s does not start the package's program", unit)
		}
	}
}

// hardening expects the program of the daemons to be loaded at a random address, and its table of
// functions to be read-only once it runs.
func hardening(t *testing.T, program string) {
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Type != elf.ET_DYN {
		t.Errorf("it is no position-independent executable but an %v", file.Type)
	}
	if flags, err := file.DynValue(elf.DT_FLAGS); err != nil || len(flags) != 1 ||
		elf.DynFlag(flags[0])&elf.DF_BIND_NOW == 0 {
		t.Errorf("its functions are bound late: flags %v, %v", flags, err)
	}
	if !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_RELRO }) {
		t.Error("it has no segment that becomes read-only")
	}
}

// ibverbs has the version of rdma-core in which libibverbs got each version of symbols.
var ibverbs = map[string]int{"1.0": 1, "1.1": 1, "1.5": 20, "1.6": 24, "1.7": 25, "1.8": 28, "1.9": 30, "1.10": 31,
	"1.11": 32, "1.12": 34, "1.13": 35, "1.14": 36}

// libraries compares the dependencies of the packages with the libraries of the program.
func libraries(t *testing.T, program, deb, rpm string) {
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	libc, verbs := 0, 0
	for _, s := range symbols {
		name, of, _ := strings.Cut(s.Version, "_")
		switch name {
		case "GLIBC":
			minor, err := strconv.Atoi(strings.Split(of, ".")[1])
			if err != nil {
				t.Fatalf("%s has version %q", s.Name, s.Version)
			}
			libc = max(libc, minor)
		case "IBVERBS":
			since, known := ibverbs[of]
			if !known {
				t.Fatalf("%s is of libibverbs %q, of which it is not known when that came", s.Name, of)
			}
			verbs = max(verbs, since)
		default:
			t.Errorf("%s is of %s %q, which no package is asked for", s.Name, s.Library, s.Version)
		}
	}
	depends := output(t, "dpkg-deb", "--field", deb, "Depends")
	for pattern, least := range map[string]int{`libc6 \(>= 2\.(\d+)\)`: libc, `libibverbs1 \(>= (\d+)\)`: verbs} {
		asked := regexp.MustCompile(pattern).FindStringSubmatch(depends)
		if asked == nil || asked[1] != strconv.Itoa(least) {
			t.Errorf("the program needs version %d of what is in %q, and the .deb asks for %q", least, pattern, depends)
		}
	}
	requires := output(t, "rpm", "--query", "--requires", "--package", rpm)
	if want := fmt.Sprintf("libc.so.6(GLIBC_2.%d)(64bit)", libc); !strings.Contains(requires, want) {
		t.Errorf("the program needs %s, and the .rpm asks for\n%s", want, requires)
	}
	asked := regexp.MustCompile(`libibverbs\.so\.1\(IBVERBS_(\S+)\)\(64bit\)`).FindStringSubmatch(requires)
	if asked == nil || ibverbs[asked[1]] != verbs {
		t.Errorf("the program needs libibverbs of rdma-core %d, and the .rpm asks for\n%s", verbs, requires)
	}
}

// bill returns the name of the bill of materials of a program.
func bill(program string) string { return program + "_0.1.0_" + runtime.GOARCH + ".cdx.json" }

// materials checks the checksums and the bills of materials.
func materials(t *testing.T, dir, program, plugin string) {
	files := read(t, dir)
	var sums []string
	for name, text := range files {
		if name != "SHA256SUMS" {
			sums = append(sums, fmt.Sprintf("%x  %s", sha256.Sum256(text), name))
		}
	}
	slices.Sort(sums)
	got := strings.Split(strings.TrimSpace(string(files["SHA256SUMS"])), "\n")
	if slices.Sort(got); !slices.Equal(got, sums) {
		t.Errorf("SHA256SUMS has %q, and not %q", got, sums)
	}
	docs := filepath.Join(filepath.Dir(program), "../share/doc/splitnic")
	notices := output(t, "gzip", "-dc", filepath.Join(docs, "THIRD-PARTY-NOTICES.gz"))
	for _, path := range []string{program, plugin} {
		var bom struct {
			BOMFormat string `json:"bomFormat"`
			Metadata  struct {
				Component  struct{ Version string }
				Properties []struct{ Name, Value string }
			}
			Components []struct {
				Name, Version, PURL string
				Licenses            []struct{ License struct{ ID string } }
			}
		}
		name := bill(filepath.Base(path))
		if err := json.Unmarshal(files[name], &bom); err != nil {
			t.Fatal(err)
		}
		if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != version {
			t.Errorf("%s is a %q of %q", name, bom.BOMFormat, bom.Metadata.Component.Version)
		}
		packed := output(t, "gzip", "-dc", filepath.Join(docs, filepath.Base(path)+".cdx.json.gz"))
		if packed != string(files[name]) {
			t.Errorf("the package has another bill of materials than %s", name)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		hash := struct{ Name, Value string }{"cdx:gomod:binary:hash:SHA-256", fmt.Sprintf("%x", sha256.Sum256(text))}
		if !slices.Contains(bom.Metadata.Properties, hash) {
			t.Errorf("%s is about another program than that of the package", name)
		}
		var got []string
		for _, c := range bom.Components {
			got = append(got, c.PURL)
			if len(c.Licenses) == 0 || c.Licenses[0].License.ID == "" {
				t.Errorf("%s does not say the licence of %s", name, c.Name)
			}
		}
		want := []string{"pkg:golang/std@" + runtime.Version()}
		for line := range strings.Lines(output(t, "go", "version", "-m", path)) {
			if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "dep" {
				want = append(want, "pkg:golang/"+fields[1]+"@"+fields[2])
				if !strings.Contains(notices, "\n"+fields[1]+" "+fields[2]+": LIC") {
					t.Errorf("%s is linked, and its licence is not handed on", fields[1])
				}
			}
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, and linked are %q", name, got, want)
		}
	}
}

// TestVersions makes package versions of the output of git describe, in ascending order.
func TestVersions(t *testing.T) {
	testenv.NeedTools(t, "bash", "dpkg", "git")
	before := ""
	for _, c := range []struct{ says, want string }{
		{"deae2e7", "0~20231114.deae2e7"},
		{"deae2e7-dirty", "0~20231114.deae2e7.dirty"},
		{"v0.1.0-rc.1", "0.1.0~rc.1"},
		{"v0.1.0-rc.1-5-gdeae2e7", "0.1.0~rc.1+5.gdeae2e7"},
		{"v0.1.0-rc.2", "0.1.0~rc.2"},
		{"v0.1.0", "0.1.0"},
		{"v0.1.0-5-gdeae2e7", "0.1.0+5.gdeae2e7"},
		{"v0.1.0-5-gdeae2e7-dirty", "0.1.0+5.gdeae2e7+dirty"},
		{"v0.1.1", "0.1.1"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(checkout, "scripts/packages"), "--version", c.says)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch)
		out, err := cmd.CombinedOutput()
		got := strings.TrimSpace(string(out))
		if err != nil || got != c.want {
			t.Errorf("%s is version %q of a package, and not %q: %v", c.says, got, c.want, err)
		}
		if before != "" {
			output(t, "dpkg", "--compare-versions", before, "lt", got)
		}
		before = got
	}
}

// TestRelease runs scripts/release in this checkout. It expects that only the next release can be
// made.
func TestRelease(t *testing.T) {
	testenv.NeedTools(t, "awk", "bash", "sed")
	changes, err := os.ReadFile(filepath.Join(checkout, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	next := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)$`).FindSubmatch(changes)
	if next == nil {
		t.Fatal("CHANGELOG.md has no section for the next release")
	}
	script := filepath.Join(checkout, "scripts/release")
	for _, suffix := range []string{"", "-rc.1"} {
		if notes := output(t, script, "v"+string(next[1])+suffix); !strings.Contains(notes, "\n- ") {
			t.Errorf("v%s%s has the notes\n%s", next[1], suffix, notes)
		}
	}
	plain := string(next[1])
	for _, wrong := range []string{"v999.0.0", "v0.0.1", plain, "v" + plain + "-5-gdeae2e7", "v1", ""} {
		if out, err := exec.CommandContext(t.Context(), script, wrong).CombinedOutput(); err == nil {
			t.Errorf("%q can be released:\n%s", wrong, out)
		}
	}
}

// TestReleaseTags expects the workflow to start for every tag that scripts/release accepts, and
// not for the tag of the major version, which the workflow itself moves.
func TestReleaseTags(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout, ".github/workflows/release.yml"))
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`(?m)^    tags: \["(\S+)"\]`).FindSubmatch(text)
	if pattern == nil {
		t.Fatal("release.yml names no tags")
	}
	for tag, want := range map[string]bool{
		"v0.1.0": true, "v0.2.0-rc.1": true, "v10.11.12": true, "v0": false, "v1": false,
	} {
		if got, err := path.Match(string(pattern[1]), tag); err != nil || got != want {
			t.Errorf("%s starts a release: %t, %v", tag, got, err)
		}
	}
}
