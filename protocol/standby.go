package protocol

// FeatureStandby is the word, in hello and welcome, for a session whose host has
// another one that it uses: the I/O unit keeps the host's port on the LAN down
// until the host sets it up by CfgLinkState.
const FeatureStandby = "standby"
