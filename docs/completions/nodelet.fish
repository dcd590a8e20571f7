# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_nodelet_global_optspecs
    string join \n config= root= o/output= h/help V/version
end

function __fish_nodelet_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_nodelet_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_nodelet_using_subcommand
    set -l cmd (__fish_nodelet_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c nodelet -n "__fish_nodelet_needs_command" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_needs_command" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_needs_command" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_needs_command" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "run" -d 'Run the daemon: converge, and stay converged'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "plan" -d 'Show what would change, and why; change nothing'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "stage" -d 'Make a change ready: resolve, verify and download everything; change nothing'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "apply" -d 'Converge once'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "rollback" -d 'Go back to the last good state, and stay there until the state file changes'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "history" -d 'List what was applied when, by which revision, with the result'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "status" -d 'Show whether the node is converged, and what it waits for'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "validate" -d 'Check state files or configuration files; print every mistake with line and column'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "rescue" -d 'Watch over nodelet\'s own upgrade; nodelet starts this itself'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "render" -d 'Show the state with its presets written out: packages, files, units and kernel settings'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "config" -d 'Show the configuration in effect, and which file each value comes from'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "version" -d 'Show the version'
complete -c nodelet -n "__fish_nodelet_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c nodelet -n "__fish_nodelet_using_subcommand run" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand run" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand run" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand run" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand plan" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand plan" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand plan" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand plan" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand stage" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand stage" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand stage" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand stage" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand stage" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand apply" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand apply" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand apply" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand apply" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand rollback" -l to -d 'The revision to go back to; without it, the newest good one that isn\'t the state file\'s' -r
complete -c nodelet -n "__fish_nodelet_using_subcommand rollback" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand rollback" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand rollback" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand rollback" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand rollback" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand history" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand history" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand history" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand history" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand status" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand status" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand status" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand status" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand validate" -l kind -d 'What the files are; without it, told by their names: `nodelet.toml` and what lies in a `nodelet.toml.d` are configuration, all others are states' -r -f -a "state\t'A desired state'
config\t'nodelet\'s own configuration'"
complete -c nodelet -n "__fish_nodelet_using_subcommand validate" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand validate" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand validate" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand validate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand validate" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand rescue" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand rescue" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand rescue" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand rescue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand rescue" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand render" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand render" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand render" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand render" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand render" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand config" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand config" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand config" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand config" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand version" -l config -d 'The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the same names below /run and /usr/lib' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand version" -l root -d 'Take all paths of the host below this directory' -r -F
complete -c nodelet -n "__fish_nodelet_using_subcommand version" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'"
complete -c nodelet -n "__fish_nodelet_using_subcommand version" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodelet -n "__fish_nodelet_using_subcommand version" -s V -l version -d 'Print version'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "run" -d 'Run the daemon: converge, and stay converged'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "plan" -d 'Show what would change, and why; change nothing'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "stage" -d 'Make a change ready: resolve, verify and download everything; change nothing'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "apply" -d 'Converge once'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "rollback" -d 'Go back to the last good state, and stay there until the state file changes'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "history" -d 'List what was applied when, by which revision, with the result'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "status" -d 'Show whether the node is converged, and what it waits for'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "validate" -d 'Check state files or configuration files; print every mistake with line and column'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "rescue" -d 'Watch over nodelet\'s own upgrade; nodelet starts this itself'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "render" -d 'Show the state with its presets written out: packages, files, units and kernel settings'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "config" -d 'Show the configuration in effect, and which file each value comes from'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "version" -d 'Show the version'
complete -c nodelet -n "__fish_nodelet_using_subcommand help; and not __fish_seen_subcommand_from run plan stage apply rollback history status validate rescue render config version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
