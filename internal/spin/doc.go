// Package spin decides who may poll for a while instead of sleeping at once, and for how
// long: who polls answers sooner, and takes a processor that somebody else may need.
//
// Limit is the machine's say: as many poll as there are processors that would be idle.
// Window is what one worker has learnt: it polls for as long as that has been worth it.
package spin
