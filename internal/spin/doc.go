// Package spin decides which workers may poll for a while instead of sleeping at once, and for
// how long. A worker that polls answers sooner, and occupies a processor that another task may
// need.
//
// Limit decides for the machine: as many workers poll as there are processors that would be idle
// otherwise. Window decides for one worker, by experience: the worker polls for as long as that
// has been worth it.
package spin
