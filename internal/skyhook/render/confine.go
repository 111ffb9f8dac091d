// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// Capabilities of containers that are not privileged. Those that only look start steps as a user who may read every file, and end them.
var (
	lookingCapabilities = []corev1.Capability{"DAC_READ_SEARCH", "KILL", "SETGID", "SETUID", "SYS_CHROOT"}
	workingCapabilities = append([]corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"}, lookingCapabilities...)
)

// sharedDirs are what is left of the host's /run for steps that may ask systemd. Other services listen there, too.
var sharedDirs = []string{"/run/systemd", "/run/dbus"}

// confinePod takes the host's processes from a pod whose containers are confined, unless they may ask systemd: systemctl trusts no socket of
// a process that it does not see. The pod keeps the network: names are resolved by what listens on the host, and nodes without a network
// plugin get packages, too.
func confinePod(spec *corev1.PodSpec, p pack.Privileges) {
	spec.HostPID, spec.HostIPC = p.IsFull() || p.AskSystemd(), p.Has(pack.PrivilegeSysctl)
}

// confine changes a container that works on the host, as privileged ones do, to what its privileges say: it reads the whole host, and writes
// what is named. None mean that it stays as it is.
func (r Renderer) confine(spec *corev1.PodSpec, c *corev1.Container, p pack.Privileges) {
	if p.IsFull() {
		return
	}
	c.SecurityContext = unprivilegedContext(workingCapabilities...)
	c.Env = append(c.Env, corev1.EnvVar{Name: pack.EnvPrivileges, Value: strings.Join(p, ",")})
	c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), isRootMount)
	dirs := append(r.ownDirs(), p.Dirs()...)
	if p.Has(pack.PrivilegeSysctl) {
		dirs = append(dirs, "/proc/sys")
	}
	c.VolumeMounts = append(c.VolumeMounts, readOnlyRootMount(), privateMount(spec, c.Name, privateTmp))
	for _, dir := range dirs {
		c.VolumeMounts = append(c.VolumeMounts, dirMount(spec, dir))
	}
	if p.AskSystemd() {
		c.VolumeMounts = append(c.VolumeMounts, privateMount(spec, c.Name, "/run"))
		for _, dir := range sharedDirs {
			m := dirMount(spec, dir)
			m.ReadOnly, m.RecursiveReadOnly = true, new(corev1.RecursiveReadOnlyEnabled)
			c.VolumeMounts = append(c.VolumeMounts, m)
		}
	}
}

// confineCopy does the same for the container that brings a package to the host.
func (r Renderer) confineCopy(spec *corev1.PodSpec, c *corev1.Container, p pack.Privileges) {
	if p.IsFull() {
		return
	}
	c.SecurityContext = unprivilegedContext()
	c.VolumeMounts = append(slices.DeleteFunc(slices.Clone(c.VolumeMounts), isRootMount), dirMount(spec, r.ownDirs()[0]))
}

// ownDirs are the directories of the host that agents write for a Skyhook: records and packages, and logs.
func (r Renderer) ownDirs() []string {
	name := r.Facts.Skyhook.Name
	return []string{r.Facts.Config.CopyDirRoot + "/" + name, r.Facts.Config.LogRoot + "/" + name}
}

func isRootMount(m corev1.VolumeMount) bool { return m.Name == podstate.VolumeRoot }

func readOnlyRootMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: podstate.VolumeRoot, MountPath: plan.RootMount, ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)}
}

// dirMount mounts a directory of the host at its place below the root.
func dirMount(spec *corev1.PodSpec, dir string) corev1.VolumeMount {
	kind := corev1.HostPathDirectoryOrCreate
	volume := corev1.Volume{Name: plan.SafeName(63, "dir", dir), VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}}}
	addVolume(spec, volume)
	return corev1.VolumeMount{Name: volume.Name, MountPath: plan.RootMount + dir}
}

// privateMount mounts a directory of the container's own in place of one of the host.
func privateMount(spec *corev1.PodSpec, container, dir string) corev1.VolumeMount {
	volume := corev1.Volume{Name: plan.SafeName(63, "own", container, dir), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	addVolume(spec, volume)
	return corev1.VolumeMount{Name: volume.Name, MountPath: plan.RootMount + dir}
}

// unprivilegedContext allows root in the container these capabilities, and nothing else. Default profiles of SELinux and AppArmor would
// keep it from the host's files and from systemd's messages.
func unprivilegedContext(capabilities ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), RunAsUser: new(int64(0)),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}, AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
	}
}
