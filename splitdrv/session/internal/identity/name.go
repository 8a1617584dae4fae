package identity

const (
	MaxNameLength = 253 // as for host names
	maxWord       = 64  // bytes of a feature, a session identifier, a mode
)

// ValidName reports whether s can be the name of a host or an I/O unit, also in a trust
// entry, a log or a label of a metric: 1 to 253 letters, digits, '.', '_' or '-'.
func ValidName(s string) bool { return validToken(s, MaxNameLength) }

// ValidWord reports whether s can be a word of a message, such as a feature or a mode.
func ValidWord(s string) bool { return validToken(s, maxWord) }

func validToken(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
