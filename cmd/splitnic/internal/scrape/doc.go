// Package scrape serves metrics to Prometheus: by HTTP, or by HTTPS and to certain users,
// as a file in the web-config format of Prometheus' exporter toolkit says. All scrapers
// together are bounded in what they can have this process do, also before it knows who
// they are.
//
// Files, in the order in which they refer to each other: server.go, config.go, log.go.
package scrape
