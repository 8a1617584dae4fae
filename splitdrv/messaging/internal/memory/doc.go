// Package memory bounds the registered memory of sessions, each by itself and all together.
package memory
