"""Reading over the network, when the files are not accessible: routes, offsets and pulls by the remoting protocol.

    access      settings by which a task reaches the servers: addresses, credentials, patience
    connection  one connection: frames out, frames in, errors of a damaged peer
    routes      the brokers and queues of a topic, from the name servers
    offsets     the first, the last and the queue offset of a time, for many queues at once
    plan        queue offsets -> the ranges that one task reads
    pulls       the records of one range, in order, whole
    asked       options -> the above
    task        a task's ranges, pulled and turned into columns
    reader      a DataSourceReader of all that
    stream      a DataSourceStreamReader

It leaves nothing on a broker: it sends no heartbeat, commits no offset, and pulls as TOOLS_CONSUMER, a group that every
broker has from its start.
"""
