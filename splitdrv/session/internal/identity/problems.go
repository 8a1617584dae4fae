package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Problems returns why peers will reject the certificate, which is for usage, and why this side
// will reject every peer with a certificate.
func (c *Credentials) Problems(usage x509.ExtKeyUsage, now time.Time) []error {
	if c.Trust == nil {
		return nil
	}
	problems := c.Trust.problems(now)
	if err := c.problem(usage, now); err != nil {
		problems = append(problems, fmt.Errorf("certificate %s: %w", c.file, err))
	}
	return problems
}

// problem verifies this side's own certificate like a peer that trusts the same authorities.
func (c *Credentials) problem(usage x509.ExtKeyUsage, now time.Time) error {
	if !c.Issued {
		return nil // a peer looks only at the key
	}
	var chain []*x509.Certificate
	for i, der := range c.Certificate.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("number %d in it is damaged: %w", i+1, err)
		}
		chain = append(chain, cert)
	}
	_, err := c.Trust.like(chain).Verify(chain, usage, now)
	switch {
	case err == nil:
		return nil
	case Expired(err):
		return errors.New(untimelyFix(err))
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return errors.New("it was not issued by an authority in --ca, nor by another certificate in the file; put those of intermediate authorities behind it, and also that of the authority itself if the peers trust another one than --ca")
	}
	if purpose, ok := errors.AsType[purposeError](err); ok {
		return purpose
	}
	return err
}

// Fault returns what is wrong with the certificate itself when a peer rejects it, or nil. The
// certificates of such peers are for usage.
func (c *Credentials) Fault(usage x509.ExtKeyUsage, now time.Time) error {
	if !c.Issued {
		return nil
	}
	if err := untimely(c.Leaf, now); err != nil {
		return err
	}
	return checkPurpose(c.Leaf, otherPart(usage))
}

// like returns the trust of a peer that trusts the same authorities, and the self-signed ones
// in its chain. Without authorities, the last certificate of the chain counts as one: whether
// it is, only the peers know.
func (t *Trust) like(chain []*x509.Certificate) *Trust {
	peer := &Trust{ca: x509.NewCertPool(), roots: slices.Clone(t.roots)}
	for i, cert := range chain {
		if cert.CheckSignatureFrom(cert) == nil || i > 0 && i == len(chain)-1 && t.ca == nil {
			peer.roots = append(peer.roots, cert)
		}
	}
	if len(peer.roots) == 0 && t.ca == nil {
		peer.roots = []*x509.Certificate{chain[0]}
	}
	for _, cert := range peer.roots {
		peer.ca.AddCert(cert)
	}
	return peer
}

// problems returns an error for each authority if none of them is valid now.
func (t *Trust) problems(now time.Time) (problems []error) {
	for i, root := range t.roots {
		if untimely(root, now) == nil {
			return nil
		}
		problems = append(problems, fmt.Errorf("authorities %s: that of %q is %s; no peer with a certificate of it is trusted",
			t.files[i], root.Subject, validity(root, now)))
	}
	return problems
}
