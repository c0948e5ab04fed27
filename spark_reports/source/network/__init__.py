"""Reading over the network, where the files are not at hand: routes, offsets and pulls by the remoting protocol.

    access      what a task must know to talk to the servers: addresses, credentials, patience
    connection  one connection: frames out, frames in, what a damaged peer sends
    routes      which brokers and queues a topic has, as the name servers say
    offsets     the first, the last and the queue offset of a time, for many queues at once
    plan        queue offsets -> the ranges that one task reads
    pulls       the records of one range, in order, whole
    asked       options -> the above
    task        a task's ranges, pulled and turned into columns
    reader      a DataSourceReader of all that
    stream      a DataSourceStreamReader

Nothing of it leaves anything on a broker: it sends no heartbeat, commits no offset, and pulls as TOOLS_CONSUMER, a
group that every broker has from its start.
"""
