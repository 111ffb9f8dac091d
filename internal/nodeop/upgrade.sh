set -x -e
{{- if .Compare}}

# The version a release file names; nothing when the file is missing or names none.
get_version() {
    for file in "$@"; do
        if [ -f "$file" ]; then
            (
                unset KAIROS_VERSION KAIROS_SOFTWARE_VERSION_PREFIX KAIROS_SOFTWARE_VERSION
                . "$file"
                if [ -n "$KAIROS_VERSION" ]; then
                    echo "$KAIROS_VERSION-$KAIROS_SOFTWARE_VERSION_PREFIX$KAIROS_SOFTWARE_VERSION"
                fi
            )
            return
        fi
    done
}

TARGET="$(get_version "${TARGET_KAIROS_RELEASE:-/etc/kairos-release}" "${TARGET_OS_RELEASE:-/etc/os-release}")"
CURRENT="$(get_version "${HOST_KAIROS_RELEASE:-/host/etc/kairos-release}" "${HOST_OS_RELEASE:-/host/etc/os-release}")"
if [ -n "$TARGET" ]; then
    echo "target $TARGET" > "${TERMINATION_LOG:-/dev/termination-log}"
fi
# What is unknown is not the same as anything.
if [ -n "$TARGET" ] && [ "$TARGET" = "$CURRENT" ]; then
    echo "Up to date"
    echo "Current version: $CURRENT"
    echo "Target version: $TARGET"
    exit 0
fi
{{- end}}

mount --rbind /host/dev /dev
mount --rbind /host/run /run

# Kubernetes puts a hostname and hosts of its own into the container: they are not the system's. Older agents cannot leave
# anything out.
if kairos-agent upgrade --help 2>&1 | grep -q -e --exclude-path; then
{{- range .Calls}}
    {{.}}{{$.Excludes}}
{{- end}}
    exit 0
fi
{{- if .Strict}}
echo "the kairos-agent of this image does not know --exclude-path, which excludePaths needs" >&2
exit 1
{{- else}}
{{- range .Calls}}
{{.}}
{{- end}}
exit 0
{{- end}}
