// Package links joins network namespaces by links of a given rate and delay.
package links
