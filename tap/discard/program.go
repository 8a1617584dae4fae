package discard

import (
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// The program's registers. Calls of the kernel's functions do not change them.
const (
	ctx   = frameasm.Context
	meter = frameasm.Offset // the queue's counters; before that, where the IP header begins
	kind  = asm.R8          // kind of the frame; before that, EtherType
	entry = asm.R9          // the datagram's entry in the table; before that, its hash
)

// Kinds of frames.
const (
	whole = iota // not a fragment
	first
	further
)

// Offsets in the program's stack.
const (
	header = -56 // 48 bytes: IP header, with the fragment header of IPv6
	tag    = -8  // VLAN tag
	hash   = -64 // 4 bytes: hash of the datagram, the lowest bit is 0
)

// assemble returns the program. The program handles a frame that it cannot parse as one that
// is not a fragment.
func (cfg Config) assemble(meters, datagrams int) asm.Instructions {
	var p program
	p.Add(asm.Mov.Reg(ctx, asm.R1))
	p.EtherType(kind)
	p.Add(asm.Mov.Imm(frameasm.Offset, 14))
	p.SkipTags(kind, tag, "whole")
	p.Add(
		asm.JEq.Imm(kind, unix.ETH_P_IP, "ipv4"),
		asm.JEq.Imm(kind, unix.ETH_P_IPV6, "ipv6"),
	)
	p.Label("whole")
	p.Add(
		// Only fragments use the hash and the entry. For a process without CAP_PERFMON the
		// verifier also follows branches that only a mispredicting processor takes.
		asm.StoreImm(asm.RFP, hash, 0, asm.Word),
		asm.LoadMapValue(entry, datagrams, 0),
		asm.Mov.Imm(kind, whole),
		asm.Ja.Label("known"),
	)
	p.ipv4()
	p.ipv6()
	p.datagram(datagrams)
	cfg.judge(&p, meters)
	return p.Instructions
}

// ipv4 hashes the fields that all fragments of a datagram have in common.
func (p *program) ipv4() {
	p.Label("ipv4")
	p.Load(header, 20, "whole")
	p.Half(kind, header+6)
	p.Add(
		asm.And.Imm(kind, 0x3fff), // "more fragments", and the offset
		asm.JEq.Imm(kind, 0, "whole"),
		asm.And.Imm(kind, 0x1fff),
		asm.LoadMem(entry, asm.RFP, header+12, asm.Word), // addresses
		asm.LSh.Imm(entry, 32),
		asm.LoadMem(asm.R1, asm.RFP, header+16, asm.Word),
		asm.Or.Reg(entry, asm.R1),
	)
	p.mix()
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, header+4, asm.Half), // identification
		asm.LSh.Imm(asm.R1, 8),
		asm.LoadMem(asm.R2, asm.RFP, header+9, asm.Byte), // protocol
		asm.Or.Reg(asm.R1, asm.R2),
		asm.Xor.Reg(entry, asm.R1),
		asm.Ja.Label("fragment"),
	)
}

// ipv6 does the same if the fragment header is the first extension header, as Linux sends it
// unless a program requests other headers.
func (p *program) ipv6() {
	p.Label("ipv6")
	p.Load(header, 48, "whole")
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, header+6, asm.Byte),
		asm.JNE.Imm(asm.R1, unix.IPPROTO_FRAGMENT, "whole"),
	)
	p.Half(kind, header+42)
	p.Add(
		asm.And.Imm(kind, 0xfff9), // the offset, and "more fragments"
		asm.JEq.Imm(kind, 0, "whole"),
		asm.And.Imm(kind, 0xfff8),
		asm.LoadMem(entry, asm.RFP, header+8, asm.DWord),
	)
	for _, at := range []int16{header + 16, header + 24, header + 32} {
		p.mix()
		p.Add(
			asm.LoadMem(asm.R1, asm.RFP, at, asm.DWord),
			asm.Xor.Reg(entry, asm.R1),
		)
	}
	p.mix()
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, header+44, asm.Word), // identification
		asm.Xor.Reg(entry, asm.R1),
	)
}

// datagram finds the entry of the fragment's datagram in the table. A first fragment replaces
// another datagram with the same entry.
func (p *program) datagram(datagrams int) {
	p.Label("fragment")
	p.mix()
	p.Add(
		asm.RSh.Imm(entry, 32),
		asm.Mov.Reg(asm.R1, entry),
		asm.And.Imm(asm.R1, -2),
		asm.StoreMem(asm.RFP, hash, asm.R1, asm.Word),
		asm.RSh.Imm(entry, 32-12), // log2 of table
		asm.LSh.Imm(entry, 2),
		asm.LoadMapValue(asm.R1, datagrams, 0),
		asm.Add.Reg(entry, asm.R1), // scalar plus pointer: the verifier accepts this order
		asm.JEq.Imm(kind, 0, "first"),
		asm.Mov.Imm(kind, further),
		asm.Ja.Label("known"),
	)
	p.Label("first")
	p.Add(asm.Mov.Imm(kind, first))
}

// judge decides by the number of frames that wait in the queue. An entry of the table is the
// hash of a datagram, with the lowest bit set if the rest of the datagram is to be dropped.
func (cfg Config) judge(p *program, meters int) {
	pass, drop := int32(1<<30), int32(0) // how many bytes to keep
	p.Label("known")
	if cfg.Ingress {
		pass, drop = -1, 2 // TC_ACT_UNSPEC: other programs may decide too; TC_ACT_SHOT
		// A macvtap chooses the queue by the remainder of the frame's hash.
		p.Add(
			asm.Mov.Reg(asm.R1, ctx),
			asm.FnGetHashRecalc.Call(),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.Mod.Imm(asm.R1, int32(cfg.Queues)),
		)
	} else {
		p.Add(asm.LoadMem(asm.R1, ctx, frameasm.Queue, asm.Word))
	}
	reserve := cfg.Length / 4
	p.Add(
		asm.JGE.Imm(asm.R1, int32(cfg.Queues), "pass"),
		asm.LSh.Imm(asm.R1, 7), // log2 of meterSize
		asm.LoadMapValue(meter, meters, 0),
		asm.Add.Reg(meter, asm.R1),
		asm.LoadMem(asm.R2, meter, passedAt, asm.DWord),
		asm.LoadMem(asm.R3, meter, readAt, asm.DWord),
		asm.Sub.Reg(asm.R2, asm.R3), // number of waiting frames; may be less than 0
		asm.JEq.Imm(kind, whole, "new"),
		asm.LoadMem(asm.R4, asm.RFP, hash, asm.Word),
		asm.JEq.Imm(kind, first, "new"),
		// A further fragment.
		asm.LoadMem(asm.R5, entry, 0, asm.Word),
		asm.Or.Imm(asm.R4, 1),
		asm.JEq.Reg(asm.R5, asm.R4, "drop"),
		asm.JSLT.Imm(asm.R2, int32(cfg.Length), "count"),
	)
	p.Label("full")
	p.Add(
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, meter, seenAt, asm.DWord),
		asm.LoadMem(asm.R3, meter, readAt, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R3, "unread"),
		asm.StoreMem(meter, seenAt, asm.R3, asm.DWord),
		asm.StoreMem(meter, sinceAt, asm.R0, asm.DWord),
		asm.Ja.Label("refuse"),
	)
	p.Label("unread")
	p.Add(
		asm.LoadMem(asm.R3, meter, sinceAt, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R3),
		asm.LoadImm(asm.R3, int64(cfg.Patience), asm.DWord),
		asm.JGT.Reg(asm.R0, asm.R3, "accept"),
	)
	p.Label("refuse")
	p.Add(
		asm.JEq.Imm(kind, whole, "drop"),
		asm.LoadMem(asm.R4, asm.RFP, hash, asm.Word),
		asm.Or.Imm(asm.R4, 1),
		asm.StoreMem(entry, 0, asm.R4, asm.Word),
	)
	p.Label("drop")
	if cfg.Ingress {
		// The statistics of the netdevice do not have these frames. Those of a TAP device do.
		p.Add(
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(meter, asm.R1, asm.DWord, droppedAt),
		)
	}
	p.Add(
		asm.Mov.Imm(asm.R0, drop),
		asm.Return(),
	)
	p.Label("new")
	p.Add(asm.JSGE.Imm(asm.R2, int32(cfg.Length-reserve), "full"))
	p.Label("accept")
	p.Add(
		asm.JNE.Imm(kind, first, "count"),
		asm.LoadMem(asm.R4, asm.RFP, hash, asm.Word),
		asm.StoreMem(entry, 0, asm.R4, asm.Word),
	)
	p.Label("count")
	p.Add(
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(meter, asm.R1, asm.DWord, passedAt),
	)
	p.Label("pass")
	p.Add(
		asm.Mov.Imm(asm.R0, pass),
		asm.Return(),
	)
}

// program is an eBPF program under construction.
type program struct{ frameasm.Program }

// mix spreads the bits of the hash.
func (p *program) mix() {
	p.Add(
		asm.LoadImm(asm.R1, frameasm.Golden, asm.DWord),
		asm.Mul.Reg(entry, asm.R1),
		asm.Mov.Reg(asm.R1, entry),
		asm.RSh.Imm(asm.R1, 29),
		asm.Xor.Reg(entry, asm.R1),
	)
}
