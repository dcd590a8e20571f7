# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kubectl_nodes_global_optspecs
    string join \n kubeconfig= context= n/namespace= o/output= h/help V/version
end

function __fish_kubectl_nodes_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kubectl_nodes_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kubectl_nodes_using_subcommand
    set -l cmd (__fish_kubectl_nodes_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -s V -l version -d 'Print version'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "status" -d 'Show how far sets and their nodes are'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "why" -d 'Say why a node is as it is, what it waits for, and what to do'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "plan" -d 'Show what would change on each node of a set, and in which order'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "render" -d 'Show the state that a class stands for, with its presets written out'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "history" -d 'List the revisions of a set\'s class, and which nodes have them'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "undo" -d 'Let a set go back to an earlier revision'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "retry" -d 'Try again what failed or was passed over in a set, as it is'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "pause" -d 'Begin nothing more in a set, or on one node'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "resume" -d 'Go on in a set, or on one node'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "wait" -d 'Wait until all nodes of a set have what its class asks for'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "token" -d 'Make a bootstrap token with which one node can join, and print it'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "completion" -d 'Print a script that completes commands in a shell'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand status" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand status" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand status" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand status" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand status" -s w -l watch -d 'Keep it up to date until Ctrl-C'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand why" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand why" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand why" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand why" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand why" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand plan" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand plan" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand plan" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand plan" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand render" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand render" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand render" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand render" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand render" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand history" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand history" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand history" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand history" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand undo" -l to -l to-revision -d 'The revision to go back to; `kubectl nodes history` lists them. Without it, what all nodes had last' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand undo" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand undo" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand undo" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand undo" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand retry" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand retry" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand retry" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand retry" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand retry" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand pause" -l node -d 'One node instead of a set' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand pause" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand pause" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand pause" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand pause" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand resume" -l node -d 'One node instead of a set' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand resume" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand resume" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand resume" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand resume" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand wait" -l timeout -d 'How long at most: a number with s, m, h or d' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand wait" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand wait" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand wait" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand wait" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand token" -l ttl -d 'How long it is good: a number with s, m, h or d' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand token" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand token" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand token" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand token" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand token" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand completion" -l kubeconfig -d 'The kubeconfig file to use' -r -F
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand completion" -l context -d 'The context of the kubeconfig to use' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand completion" -s n -l namespace -d 'The namespace that node-controller runs in' -r
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand completion" -s o -l output -d 'How results are printed' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs, and for people who look at objects'"
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand completion" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "status" -d 'Show how far sets and their nodes are'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "why" -d 'Say why a node is as it is, what it waits for, and what to do'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "plan" -d 'Show what would change on each node of a set, and in which order'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "render" -d 'Show the state that a class stands for, with its presets written out'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "history" -d 'List the revisions of a set\'s class, and which nodes have them'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "undo" -d 'Let a set go back to an earlier revision'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "retry" -d 'Try again what failed or was passed over in a set, as it is'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "pause" -d 'Begin nothing more in a set, or on one node'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "resume" -d 'Go on in a set, or on one node'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "wait" -d 'Wait until all nodes of a set have what its class asks for'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "token" -d 'Make a bootstrap token with which one node can join, and print it'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "completion" -d 'Print a script that completes commands in a shell'
complete -c kubectl-nodes -n "__fish_kubectl_nodes_using_subcommand help; and not __fish_seen_subcommand_from status why plan render history undo retry pause resume wait token completion help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
