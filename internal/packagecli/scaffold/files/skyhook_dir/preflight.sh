#!/bin/bash
# Runs before the node takes its turn, and says what the package needs there. It only looks: nothing but /tmp can be
# written. Of the lines in the file that SKYHOOK_ANSWER names the strongest counts, the last one of these:
#
#   none: REASON                    nothing is to be done on this node
#   config: REASON                  the config stage is enough
#   apply: REASON                   the stages are enough, without an interrupt
#   service NAME[,NAME...]: REASON  and these services must restart
#   reboot: REASON                  and the node must reboot
#   blocked: REASON                 the node must not be worked on now
set -euo pipefail

answer() {
  echo "$1" >>"$SKYHOOK_ANSWER"
}

wanted=$SKYHOOK_DIR/configmaps/settings.conf
there=/opt/<<.Name>>/settings.conf

if [ ! -d /opt/<<.Name>> ]; then
  answer "apply: there is no /opt/<<.Name>>"
elif [ -e "$wanted" ] && ! cmp -s "$wanted" "$there"; then
  answer "config: $there differs from the configMap"
elif [ ! -e "$wanted" ] && [ -e "$there" ]; then
  answer "config: $there is no longer in the configMap"
else
  answer "none: /opt/<<.Name>> is as the configMap says"
fi
