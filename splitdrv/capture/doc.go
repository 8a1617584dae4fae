// Package capture lets people see the frames of a running endpoint.
//
// An endpoint has a Point, and a Path for each queue of each of its connections, which
// data channels show their frames to. While nobody captures that is the load of one
// pointer for each batch of frames. A Capture copies what it is to have into memory of a
// fixed size, which its reader takes away: data channels wait for each other while they
// copy, and never for the reader. A frame for which there is no room is counted.
//
// # Files
//
//	point    where captures begin and end
//	path     what data channels know
//	capture  one capture: what it takes, and what it has counted
//	record   frames in memory
package capture
