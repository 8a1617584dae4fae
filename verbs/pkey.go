package verbs

import (
	"errors"
	"fmt"
	"strings"
)

// fullMember is the bit of a partition key that says that the port is a full member of
// the partition, which may exchange packets with all others of it; a limited member may
// with full members only (InfiniBand Architecture Specification, volume 1, 10.9.2).
const fullMember = 0x8000

// maxPKeyIndex is the largest index that ibv_qp_attr.pkey_index can hold.
const maxPKeyIndex = 1<<16 - 1

// ErrNoPKey is wrapped by the error of ChoosePKey when no entry will do.
var ErrNoPKey = errors.New("no such partition key")

// ChoosePKey returns the index in a port's table of partition keys of the key that is
// wanted. A key without the bit of full members (0x8000) stands for its partition: the
// entry of a full member is taken rather than that of a limited one. With the bit, only
// a full member will do. Invalid entries are 0 in their lower 15 bits, and no key that
// can be wanted.
func ChoosePKey(table []uint16, wanted uint16) (int, error) {
	if wanted&^fullMember == 0 {
		return 0, fmt.Errorf("%w: %#04x names no partition: its lower 15 bits are 0", ErrNoPKey, wanted)
	}
	limited := -1
	for i, key := range table[:min(len(table), maxPKeyIndex+1)] {
		switch {
		case key&^fullMember != wanted&^fullMember:
		case key&fullMember != 0:
			return i, nil
		case limited < 0:
			limited = i
		}
	}
	switch {
	case limited < 0:
		return 0, fmt.Errorf("%w: %#04x is not in the port's table, which has %s", ErrNoPKey, wanted, pkeyList(table))
	case wanted&fullMember != 0:
		return 0, fmt.Errorf("%w: the port is a limited member of the partition (%#04x), no full one (%#04x)", ErrNoPKey,
			table[limited], wanted)
	}
	return limited, nil
}

// pkeyList names the valid entries of a table.
func pkeyList(table []uint16) string {
	var s []string
	for _, key := range table {
		if key&^fullMember != 0 {
			s = append(s, fmt.Sprintf("%#04x", key))
		}
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}
