package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/verbs"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the messaging layer",
	}
	group(c)
	c.AddCommand(benchBWCommand())
	return c
}

func benchBWCommand() *cobra.Command {
	var from, to, mode string
	var sizes []int
	var queues int
	var messages uint64
	var timeout time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "bw --device DEVICE [--peer-device DEVICE]",
		Short: "Measure throughput between two RDMA devices of this machine, as ib_write_bw does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return usageError{errors.New("--device is missing: the RDMA device to send from")}
			}
			if to == "" {
				to = from
			}
			if messages == 0 || queues < 1 || queues > messaging.MaxQueues {
				return usageError{fmt.Errorf("--iters must be at least 1 and --qp 1 to %d", messaging.MaxQueues)}
			}
			m, err := protocol.ParseMode(mode)
			if err != nil {
				return usageError{fmt.Errorf("--mode: %w", err)}
			}
			a, err := verbs.Open(from)
			if err != nil {
				return err
			}
			defer a.Close()
			b, err := verbs.Open(to)
			if err != nil {
				return err
			}
			defer b.Close()
			moreProcs(4*queues + 2)
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done after %v", timeout))
			defer cancel()
			out := cmd.OutOrStdout()
			var results []bench.Result
			if !asJSON {
				fmt.Fprintf(out, "%-10s %-10s %-18s %-18s %s\n", "#bytes", "#queues", "#iterations", "BW average[MiB/s]", "MsgRate[Mpps]")
			}
			for _, size := range sizes {
				r, err := bench.Run(ctx, bench.Config{
					From: a, To: b, Mode: m, Size: size, Queues: queues, Messages: messages, WarmUp: messages / 10,
					Messaging: messaging.Config{PeerTimeout: time.Minute},
				})
				if err != nil {
					return err
				}
				results = append(results, r)
				if !asJSON {
					fmt.Fprintf(out, "%-10d %-10d %-18d %-18.2f %.6f\n", r.Size, r.Queues, r.Messages, r.MiBPerSecond, r.MessageRate/1e6)
				}
			}
			if asJSON {
				return json.NewEncoder(out).Encode(results)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&from, "device", "d", "", "RDMA device to send from")
	f.StringVar(&to, "peer-device", "", "RDMA device to send to (default: the same)")
	f.StringVar(&mode, "mode", string(protocol.ModeImm), "transfer mode: imm, indicate, send or send-uc")
	f.IntSliceVarP(&sizes, "size", "s", []int{65535}, "bytes in each message, with the virtio_net_hdr: 24 to 65535")
	f.IntVarP(&queues, "qp", "q", 1, "data channels")
	f.Uint64VarP(&messages, "iters", "n", 1000, "messages to time")
	f.DurationVar(&timeout, "timeout", time.Minute, "give up after this")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
