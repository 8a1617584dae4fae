// Package capture captures the frames of a running endpoint.
//
// An endpoint has a Point, and a Path for each queue of each of its connections. Data channels pass
// their frames to their Path. Without a capture, this costs the load of one pointer for each batch of
// frames. A Capture copies the selected frames, as blocks of pcap-ng, to memory of a fixed size, from
// which a reader takes them. Data channels wait for each other during the copies, and never for the
// reader. If the memory is full, frames are dropped and counted.
//
// # Files
//
//	point    beginning and end of captures, and the paths for data channels
//	capture  one capture: its frames and counters
package capture
