package protocol

// FeatureStandby is the feature, in hello and welcome, of a session whose host uses another session.
// The I/O unit keeps the host's port on the LAN down until the host sets it up by CfgLinkState.
const FeatureStandby = "standby"
