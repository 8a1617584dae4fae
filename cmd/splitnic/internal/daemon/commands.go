package daemon

// The commands of a daemon's status socket.
const (
	CommandStats      = "stats"
	CommandClearStats = "clear-stats"
	CommandReset      = "reset"
	CommandFailover   = "failover"
	CommandHandlers   = "handlers"
	CommandReload     = "reload"
	CommandWait       = "wait"
	CommandDrain      = "drain"
	CommandUndrain    = "undrain"
	CommandDisconnect = "disconnect"
	CommandCapture    = "capture"
	CommandEndCapture = "end-capture"
)
