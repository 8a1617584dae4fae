package render

import (
	"fmt"
	"io"

	"github.com/splitnic/splitnic/splitdrv/capture"
)

func printCaptures(w io.Writer, indent string, all []capture.Status) {
	for _, c := range all {
		of := ""
		if c.Paths != "" {
			of += fmt.Sprintf(" of paths %q", c.Paths)
		}
		if c.Filter != "" {
			of += fmt.Sprintf(" by filter %q", c.Filter)
		}
		fmt.Fprintf(w, "%scapture\t%s%s for %v, %d dropped\n", indent, Counted(c.Frames-c.Dropped, "frame"), of, ago(c.Since),
			c.Dropped)
	}
}
