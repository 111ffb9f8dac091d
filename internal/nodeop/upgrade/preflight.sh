# shellcheck shell=sh source=/dev/null
# Reports whether a node already runs the version of the image. An unknown version equals no other.
get_version() {
    for file in "$@"; do
        if [ -f "$file" ]; then
            version="$(
                unset KAIROS_VERSION KAIROS_SOFTWARE_VERSION_PREFIX KAIROS_SOFTWARE_VERSION
                . "$file"
                [ -z "$KAIROS_VERSION" ] || echo "$KAIROS_VERSION-$KAIROS_SOFTWARE_VERSION_PREFIX$KAIROS_SOFTWARE_VERSION"
            )"
            if [ -n "$version" ]; then
                echo "$version"
                return
            fi
        fi
    done
    echo unknown
}

TARGET="$(get_version "${TARGET_KAIROS_RELEASE:-/etc/kairos-release}" "${TARGET_OS_RELEASE:-/etc/os-release}")"
HOST="$(get_version "${HOST_KAIROS_RELEASE:-/host/etc/kairos-release}" "${HOST_OS_RELEASE:-/host/etc/os-release}")"
echo "host version: $HOST"
echo "target version: $TARGET"
if [ "$HOST" != unknown ] && [ "$HOST" = "$TARGET" ]; then
    echo "node is already at $HOST" > "${TERMINATION_LOG:-/dev/termination-log}"
fi
exit 0
