package uring

import "unsafe"

// Layouts and numbers of <linux/io_uring.h>.

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32

	_     [3]uint32
	sqOff struct {
		head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
		_                                                           uint64
	}
	cqOff struct {
		head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
		_                                                           uint64
	}
}

// entry is struct io_uring_sqe: one operation.
type entry struct {
	opcode   uint8
	flags    uint8
	_        uint16
	file     int32 // index of the registered file, 0 for the only one, or a descriptor
	_        uint64
	addr     uint64
	len      uint32
	rwFlags  uint32
	userData uint64
	_        [3]uint64
}

// completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	res      int32
	_        uint32
}

// The sizes have to be the kernel's.
var (
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(entry{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(completion{})]byte{}
)

const (
	opWritev = 2  // IORING_OP_WRITEV
	opRead   = 22 // IORING_OP_READ
	opWrite  = 23 // IORING_OP_WRITE

	entryFixedFile = 1 << 0 // IOSQE_FIXED_FILE

	setupSubmitAll = 1 << 7 // IORING_SETUP_SUBMIT_ALL, Linux 5.18

	featSingleMmap = 1 << 0 // IORING_FEAT_SINGLE_MMAP
	featNoDrop     = 1 << 1 // IORING_FEAT_NODROP

	enterGetEvents = 1 << 0 // IORING_ENTER_GETEVENTS

	registerFiles   = 2 // IORING_REGISTER_FILES
	unregisterFiles = 3 // IORING_UNREGISTER_FILES

	offEntries = 0x10000000 // IORING_OFF_SQES
)
