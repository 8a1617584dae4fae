// Package frameasm puts eBPF programs together that look into frames. It has what
// such programs have in common, by the instructions of cilium/ebpf.
package frameasm

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The registers that Load goes by, kept across calls of the kernel's functions.
// The caller sets them.
const (
	Context = asm.R6 // struct __sk_buff
	Offset  = asm.R7 // of what is looked at, from where the frame's data begins
)

// Offsets in struct __sk_buff of <linux/bpf.h>.
const (
	Len        = 0
	PacketType = 4
	Queue      = 12
	Protocol   = 16
)

// Golden is 2^64 divided by the golden ratio, made odd: a product's upper half
// mixes all bits of the lower half of the other factor.
const Golden = -0x61c8864680b583eb

// Program is one that is being put together.
type Program struct {
	Instructions asm.Instructions
	next         string // label of the next instruction
}

// Add appends instructions.
func (p *Program) Add(list ...asm.Instruction) {
	if p.next != "" {
		list[0] = list[0].WithSymbol(p.next)
		p.next = ""
	}
	p.Instructions = append(p.Instructions, list...)
}

// Label names the next instruction.
func (p *Program) Label(name string) { p.next = name }

// Load copies n bytes of the frame, from Offset on, to the stack, or goes to label
// if there are not so many.
func (p *Program) Load(stack, n int32, label string) {
	p.Add(
		asm.Mov.Reg(asm.R1, Context),
		asm.Mov.Reg(asm.R2, Offset),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stack),
		asm.Mov.Imm(asm.R4, n),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, label),
	)
}

// Half loads two bytes of the stack that are in network order.
func (p *Program) Half(dst asm.Register, stack int16) {
	p.Add(
		asm.LoadMem(dst, asm.RFP, stack, asm.Half),
		asm.HostTo(asm.BE, dst, asm.Half),
	)
}

// EtherType loads the frame's, as the kernel has it.
func (p *Program) EtherType(dst asm.Register) {
	p.Add(
		asm.LoadMem(dst, Context, Protocol, asm.Word),
		asm.HostTo(asm.BE, dst, asm.Half),
	)
}

// SkipTags moves Offset, and etherType, behind up to two VLAN tags, which it
// copies to the stack. It goes to label if the frame ends in one.
func (p *Program) SkipTags(etherType asm.Register, stack int16, label string) {
	for _, l := range []struct{ tag, done string }{{"tag1", "untagged1"}, {"tag2", "untagged2"}} {
		p.Add(
			asm.JEq.Imm(etherType, unix.ETH_P_8021Q, l.tag),
			asm.JNE.Imm(etherType, unix.ETH_P_8021AD, l.done),
		)
		p.Label(l.tag)
		p.Load(int32(stack), 4, label)
		p.Half(etherType, stack+2)
		p.Add(asm.Add.Imm(Offset, 4))
		p.Label(l.done)
	}
}

// Load loads instructions as a program of this name: one for a socket or a TAP device, or one for
// the ingress of a netdevice. An error wraps reason.
func Load(name string, ingress bool, list asm.Instructions, reason error) (*ebpf.Program, error) {
	kind := ebpf.SocketFilter
	if ingress {
		kind = ebpf.SchedCLS
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: kind, License: "Apache-2.0", Instructions: list})
	if err != nil {
		return nil, Explain(reason, "loading the eBPF program", err)
	}
	return p, nil
}

// Explain adds reason, and what to do, to an error of bpf(2).
func Explain(reason error, what string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EPERM):
		err = unix.EPERM // without the advice of the library to the program
		fallthrough
	case errors.Is(err, unix.EACCES):
		hint = " (needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN, and a seccomp filter that allows bpf)"
	case errors.Is(err, unix.ENOSYS):
		hint = " (the kernel needs CONFIG_BPF_SYSCALL)"
	}
	return fmt.Errorf("%w: %s: %w%s", reason, what, err, hint)
}
