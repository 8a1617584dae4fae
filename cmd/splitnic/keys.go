package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/splitdrv/session"
)

const defaultKey = "/etc/splitnic/key.pem"

// keyFlags are the flags about who this side is and whom it trusts.
type keyFlags struct {
	key, cert, ca, trustFile, revoked string
	trust, iounitNames                []string
	insecure                          bool
}

func (k *keyFlags) add(f *pflag.FlagSet) {
	f.StringVar(&k.key, "key", defaultKey, "private key of this side, made by splitnic keygen")
	f.StringArrayVar(&k.trust, "trust", nil, "fingerprint of a trusted peer's key, as [name=]sha256:…; may be repeated")
	f.StringVar(&k.trustFile, "trust-file", "", "file of trusted fingerprints, one [name=]sha256:… on each line")
	f.StringVar(&k.ca, "ca", "", "trust peers with a certificate from the authorities in this PEM file")
	f.StringVar(&k.cert, "cert", "", "certificate for --key, for peers that use --ca")
	f.StringVar(&k.revoked, "revoked", "", "file of revoked fingerprints, one [name=]sha256:… on each line: keys that are trusted no longer, whoever lists them or has issued a certificate")
	f.BoolVar(&k.insecure, "insecure", false, "no keys: talk to anybody who is insecure as well. For trials only")
}

// addNames adds the flag that only hosts have.
func (k *keyFlags) addNames(f *pflag.FlagSet) {
	f.StringSliceVar(&k.iounitNames, "iounit-name", nil,
		"name of the I/O unit in its certificate, for --ca; several where there are several I/O units "+
			"(default: any I/O unit of the authority)")
}

// security loads the keys, or does without if it was told to.
func (k *keyFlags) security() (*session.Security, error) {
	if k.insecure {
		if len(k.trust) > 0 || k.trustFile != "" || k.ca != "" || k.cert != "" || k.revoked != "" || len(k.iounitNames) > 0 {
			return nil, usageError{errors.New("--insecure does without keys: leave out --trust, --trust-file, --ca, --cert, --revoked and --iounit-name, or leave out --insecure")}
		}
		return session.Insecure()
	}
	fail := func(err error) (*session.Security, error) {
		return nil, exitError{code: exitKeys, err: err}
	}
	key, err := session.LoadKey(k.key)
	if err != nil {
		return fail(err)
	}
	trust := &session.Trust{}
	for _, entry := range k.trust {
		if err := trust.Add(entry); err != nil {
			return nil, usageError{fmt.Errorf("--trust: %w", err)}
		}
	}
	if k.trustFile != "" {
		if err := trust.AddFile(k.trustFile); err != nil {
			return fail(err)
		}
	}
	if k.ca != "" {
		if err := trust.AddCA(k.ca); err != nil {
			return fail(err)
		}
	}
	if len(k.iounitNames) > 0 && k.ca == "" {
		return nil, usageError{errors.New("--iounit-name is about certificates: name their authority with --ca")}
	}
	if err := trust.Expect(k.iounitNames...); err != nil {
		return nil, usageError{fmt.Errorf("--iounit-name: %w", err)}
	}
	if k.revoked != "" {
		if err := trust.AddRevoked(k.revoked); err != nil {
			return fail(err)
		}
	}
	security, err := session.NewSecurity(key, k.cert, trust)
	if err != nil {
		return fail(err)
	}
	return security, nil
}

func keygenCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "keygen",
		Short: "Make a private key, and print the fingerprint that the other side has to trust",
		Long: `Make a private key, and print the fingerprint that the other side has to trust.

Run it on both machines, then start each half with --trust and the fingerprint
of the other one. If the key exists already, its fingerprint is printed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := session.LoadKey(out)
			if errors.Is(err, os.ErrNotExist) {
				if key, err = session.GenerateKey(); err != nil {
					return err
				}
				if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
					return fmt.Errorf("keygen: %w", err)
				}
				err = session.SaveKey(out, key)
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), key.Fingerprint())
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", defaultKey, "file for the key")
	return c
}
