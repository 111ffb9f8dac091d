// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TopologyLimit limits how many nodes of one rack or zone are in progress at the same time.
type TopologyLimit struct {
	// topologyKey is the label that identifies the rack or zone, such as topology.kubernetes.io/zone. Nodes without it
	// are not limited.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	TopologyKey string `json:"topologyKey"`

	// count is a number of nodes, at least 1. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count,omitempty"`
}

// Windows are the times when nodes may be started. Nodes in progress finish outside of them.
type Windows struct {
	// timeZone is an IANA name, such as Europe/Berlin. Default UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+/-]*$`
	TimeZone string `json:"timeZone,omitempty"`

	// open lists the windows, 1 to 20. Nodes may be started while any of them is open.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Open []Window `json:"open"`

	// blackouts are days, in the time zone, on which no node is started, at most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Blackouts []Blackout `json:"blackouts,omitempty"`
}

// Window is a recurring span of time, from each time of a schedule on.
type Window struct {
	// schedule is a cron expression of five fields: minute, hour, day of month, month, day of week. When daylight saving
	// time starts, a time that does not exist opens no window. When it ends, a time that exists twice opens two.
	// +required
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^\\\\S+( +\\\\S+){4}$') && !self.startsWith('TZ=') && !self.startsWith('CRON_TZ=')",message="schedule is not a cron expression of five fields: write minute, hour, day of month, month and day of week, such as 0 22 * * 1-5"
	Schedule string `json:"schedule"`

	// duration is how long the window stays open then, 1m to 168h, such as 4h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration is not between 1m and 168h: use a number and a unit, such as 4h"
	Duration metav1.Duration `json:"duration"`

	// margin is how long before the end nothing is started any more, 1m to 168h, such as 30m. Absent means none. The end is when
	// every window is closed.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="margin is not between 1m and 168h: use a number and a unit, such as 30m"
	Margin *metav1.Duration `json:"margin,omitempty"`

	// atEnd says what happens to nodes in progress when the window is closed. Finish (the default) continues them. Hold begins no
	// further drain: a node that is not cordoned yet stays as it is, in progress, until the next window; running stages end,
	// and nodes that are cordoned finish.
	// +optional
	// +kubebuilder:default=Finish
	AtEnd WindowEnd `json:"atEnd,omitempty"`
}

// WindowEnd says what happens to nodes in progress when a window is closed.
// +kubebuilder:validation:Enum=Finish;Hold
type WindowEnd string

// The choices.
const (
	WindowFinish WindowEnd = "Finish"
	WindowHold   WindowEnd = "Hold"
)

// Blackout is a range of days, including the first and the last.
// +kubebuilder:validation:XValidation:rule="!has(self.to) || self.from <= self.to",message="blackout ends before it begins: put to after from"
type Blackout struct {
	// from is the first day, such as 2026-12-24.
	// +required
	From Date `json:"from"`

	// to is the last day. Absent means one day.
	// +optional
	To Date `json:"to,omitempty"`
}

// Date is a day, as year, month and day.
// +kubebuilder:validation:MinLength=10
// +kubebuilder:validation:MaxLength=10
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$')",message="not a date: write year, month and day, such as 2026-12-24"
type Date string

// HealthGates are conditions of the whole cluster that must hold before further nodes are started.
type HealthGates struct {
	// prometheus lists queries that must pass before any node is started, at most 10.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Prometheus []PrometheusGate `json:"prometheus,omitempty"`

	// objects are conditions on objects of any kind that must hold before any node is started, at most 10. There is no node
	// to ask about: the only variable is object. An administrator grants the operator the right to read them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Objects []ObjectGate `json:"objects,omitempty"`
}

// ObjectGate is a condition on objects that must hold before any node is started.
type ObjectGate struct {
	ObjectCheck `json:",inline"`

	// onFailure says what happens when the expression is false of an object. Wait (the default) starts no node until it is
	// true. Stop also asks while nodes are in progress, and stops the rollout: nodes in progress finish, and no node is started
	// until somebody resumes it. Without an answer, such as for an object that cannot be read, the gate waits.
	// +optional
	// +kubebuilder:default=Wait
	OnFailure GateFailure `json:"onFailure,omitempty"`
}

// GateFailure says what a health gate that is false does.
// +kubebuilder:validation:Enum=Wait;Stop
type GateFailure string

// The choices.
const (
	GateWait GateFailure = "Wait"
	GateStop GateFailure = "Stop"
)

// PrometheusGate is a query of which every result must be within a threshold.
// +kubebuilder:validation:XValidation:rule="has(self.atMost) != has(self.atLeast)",message="prometheus gate needs exactly one of atMost and atLeast: keep one of them"
type PrometheusGate struct {
	// name identifies the gate within the policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// url is the address of the Prometheus server, such as http://prometheus.monitoring:9090.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/ ]+.*$')",message="url is not the address of a Prometheus server: write http:// or https:// and a host, such as http://prometheus.monitoring:9090"
	URL string `json:"url"`

	// query is the PromQL query. It must return a scalar, or a vector with at least one element.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// atMost is the maximum of every result, as a decimal number. It excludes atLeast.
	// +optional
	AtMost *Decimal `json:"atMost,omitempty"`

	// atLeast is the minimum of every result, as a decimal number. It excludes atMost.
	// +optional
	AtLeast *Decimal `json:"atLeast,omitempty"`

	// onFailure says what happens when a result is outside the threshold. Wait (the default) starts no node until it is
	// within. Stop also asks while nodes are in progress, and stops the rollout: nodes in progress finish, and no node is
	// started until somebody resumes it. Without an answer, such as from a server that cannot be reached or for a query without
	// a result, the gate waits.
	// +optional
	// +kubebuilder:default=Wait
	OnFailure GateFailure `json:"onFailure,omitempty"`
}

// Decimal is a decimal number in quotes, such as "0.05".
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^-?[0-9]+([.][0-9]+)?$')",message="not a decimal number: write digits, such as \"0.05\""
type Decimal string
