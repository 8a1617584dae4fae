// Package scrape serves metrics to Prometheus: by HTTP, or by HTTPS and to certain users,
// as specified by a file in the web-config format of Prometheus' exporter toolkit. It limits the
// work that all scrapers together can cause in this process, also before they are authenticated.
//
// Files, in the order in which they refer to each other: server.go, config.go, log.go.
package scrape
