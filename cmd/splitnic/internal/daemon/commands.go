package daemon

// What a daemon does on request through its status socket.
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
