package verbs

import (
	"errors"
	"fmt"
	"strings"
)

// fullMember is the bit of a partition key that marks the port as a full member of the
// partition. A full member may exchange packets with all members, a limited member only with
// full members (InfiniBand Architecture Specification, volume 1, 10.9.2).
const fullMember = 0x8000

// maxPKeyIndex is the largest index that ibv_qp_attr.pkey_index can hold.
const maxPKeyIndex = 1<<16 - 1

// ErrNoPKey is wrapped by the error of ChoosePKey if no entry is usable.
var ErrNoPKey = errors.New("no such partition key")

// choosePKey returns the index of the wanted key in a port's partition key table. If wanted
// has the full-member bit (0x8000), only an entry with this bit matches. If wanted does not
// have the bit, any entry of the partition matches, and one with the bit is preferred. A key
// whose lower 15 bits are 0 is invalid, as a table entry and as wanted.
func choosePKey(table []uint16, wanted uint16) (int, error) {
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

// pkeyList returns the valid entries of a table as text.
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
