package endpoints

import "fmt"

// later is an argument of a message that is what the function returns when the message is written, and
// not before the test has waited.
type later func() any

// Format implements fmt.Formatter.
func (l later) Format(s fmt.State, verb rune) { fmt.Fprintf(s, fmt.FormatString(s, verb), l()) }
