-- purpose: a claim's walk along the rota: the head lane serves its credit, then the ring turns.
-- defines: rows, serving, met, ripens, serve, end_turns
-- The ring is read from its head in pieces, turned in memory, and written once: what was passed goes to its tail, or
-- leaves it. `choose(id, key)` takes a job or drops it; `rows` grows with each that is taken; true means: no more.
local rows = {} -- keys of the rows of the jobs taken
local serving = '' -- the lane whose turn it is
local met, ripens, serve, end_turns -- the lanes that were asked, in order; nil without a rota
if ROTA or ARGV[8] ~= '1' then -- or a batch is wanted
  local line, behind = {}, {} -- lanes whose turn comes, and those that had it
  met = {}
  local first = 1
  local loaded, read_all, wrapped, seen = 0, false, false, {}
  local LEAST_LANES = 16
  local function load_line(n)
    local names = call('LRANGE', RING, loaded, loaded + n - 1)
    read_all = #names < n
    if #names == 0 then return end
    loaded = loaded + #names
    local texts = call('HMGET', LANES, unpack(names))
    for i, name in ipairs(names) do
      if seen[name] then --!guard on-ring-twice
        -- The server refused to take it off the head once. Served twice, it would lease its jobs twice.
        wrapped = true
      else
        seen[name] = true
        local text = texts[i]
        -- A table of a lane is dear: made at once, with what nearly every lane needs, and the rest when it is needed.
        local lane = { name = name, text = text, key = P .. lane_set(name), credit = 0, at = 0, ids = false, taken = false }
        if text ~= 'r0' then
          local kept = read_lane(text)
          lane.credit, lane.limits = kept.credit, kept.limits
        end
        line[#line + 1] = lane
      end
    end
  end
  -- A full lane looks for leases of its own that are over: their reaping is what frees its slots.
  local function reap_lane(lane, active)
    local ids = call('ZRANGE', active, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, LEAST_LANES) --!bound reap-lane
    round(active, ids, function(id)
      local row, lease = read(id), tonumber(call('ZSCORE', ACTIVE, id))
      if lease and lease > NOW then --!guard lane-lease
        call('ZADD', active, lease, id) --!write lane-lease
      elseif row.state == 'active' and row.lane == lane.name then --!guard reap-lane
        reap_one(id)
      else
        misplaced(id, row.state, active) --!write lane-torn
      end
    end)
  end
  -- Since when the job at a set's head is ready; one whose row cannot be read has waited for long enough to be dropped.
  local function head_since(key)
    local head = call('ZRANGE', key, 0, 0)
    if not head[1] then return nil end
    local fine, since = pcall(call, 'HGET', row_key(head[1]), 'since')
    return fine and tonumber(since) or 0 --!guard head-since
  end
  -- Once a claim, at a lane's first turn: how many of its jobs may start.
  local function meet(lane, min_size, linger)
    met[#met + 1] = lane
    lane.at = 1
    local limits = lane.limits
    if limits then
      local active = lane_active(lane.name)
      if limits.limit > 0 and call('ZCARD', active) >= limits.limit then reap_lane(lane, active) end --!bound reap-full
      if shut(limits, active) then --!guard serve-shut
        lane.room = 0
        return
      end
      lane.room = allowance(limits) --!bound lane-rate
      if limits.limit > 0 then lane.room = math.min(lane.room, limits.limit - call('ZCARD', active)) end --!bound lane-limit
    end
    -- A batch cannot be larger than the lane's limit.
    if limits and limits.limit > 0 then min_size = math.min(min_size, limits.limit) end --!bound lane-batch
    if min_size > 1 and call('ZCARD', lane.key) < min_size then --!bound lane-ripe
      local since = head_since(lane.key) or 0
      if NOW < since + linger then --!guard lane-linger
        lane.room, lane.ripe = 0, math.min(since, NOW) + linger
      end
    end
  end
  -- When a batch of any lanes has waited for long enough, or nil if that is now: enough are ready, or the oldest at a head is
  -- old enough.
  function ripens(min_size, linger, visits)
    local ready_now, oldest = 0, math.huge
    for _, name in ipairs(ROTA and call('LRANGE', RING, 0, visits - 1) or { '' }) do --!bound ripens
      local key, lane = P .. lane_set(name), ROTA and read_lane(call('HGET', LANES, name)) or {}
      -- A lane may have been closed since it came to the ring: it is no part of the batch.
      if not (lane.limits and shut(lane.limits, lane_active(name))) then --!guard ripens-shut
        local count = call('ZCARD', key)
        ready_now = ready_now + (ROTA and startable(name, lane, count) or count) --!write ripens-startable
        if ready_now >= min_size then return nil end --!bound min-size
        oldest = math.min(oldest, head_since(key) or math.huge)
      end
    end
    local moment = math.min(oldest, NOW) + linger
    return ready_now > 0 and moment > NOW and moment or nil --!guard linger
  end
  -- Takes up to `most` jobs of the lane. Answers how many, whether no more fit into the reply, and whether none is left.
  local function take(lane, most, ahead, choose)
    local taken, ids, at = 0, lane.ids, lane.at
    while true do
      local id = ids and ids[at]
      if not id then
        if lane.drawn or lane.dropped then break end
        -- One more than needed, to see whether any is left.
        local n, from = math.max(most - taken, ahead) + 1, lane.taken and #lane.taken or 0
        ids, at = call('ZRANGE', lane.key, from, from + n - 1), 1
        lane.ids = ids
        if #ids < n then lane.drawn = true end
      elseif taken == most then --!bound taken
        break
      else
        local before = #rows
        if guarded(lane.key, id, choose) then
          lane.at = at
          return taken, true, false
        end
        at = at + 1
        if #rows == before then
          lane.dropped = true
        elseif lane.taken then
          lane.taken[#lane.taken + 1] = id
          taken = taken + 1
        else
          lane.taken = { id }
          taken = taken + 1
        end
      end
    end
    lane.at = at
    local empty = lane.drawn and not ids[at] or false
    -- What was dropped is paid for once; this claim looks no further, and says so.
    return taken, not empty and lane.dropped or false, empty
  end
  -- Serves up to `room` jobs, looking at `bound` lanes at most; all of one lane if `by_lane`.
  function serve(room, bound, by_lane, min_size, linger, choose)
    local full = false
    while room > 0 and bound > 0 and not full do --!bound serve
      local lane = line[first]
      if lane then
        bound = bound - 1
        if lane.at == 0 then meet(lane, min_size, linger) end
        serving = lane.name
        local most = lane.room and math.min(room, lane.room) or room
        -- A lane that is alone has nobody to take turns with.
        local alone = read_all and first == #line and #behind == 0 --!guard alone
        if lane.credit == 0 then lane.credit = lane.limits and math.max(1, lane.limits.weight) or 1 end --!write credit
        if not (alone or by_lane) then most = math.min(most, lane.credit) end --!bound credit
        local taken, empty = 0, false
        if most > 0 then taken, full, empty = take(lane, most, read_all and math.ceil(room / #line) or 1, choose) end
        room = room - taken
        if lane.room then lane.room = lane.room - taken end --!write lane-room
        if by_lane then
          if taken > 0 then room = 0 end --!guard one-lane
          lane.credit = lane.credit - 1
        elseif not alone then
          lane.credit = lane.credit - taken --!write spent
        end
        if empty then
          lane.where = '-'
        elseif lane.room == 0 then
          lane.where = 'c'
        elseif lane.credit <= 0 and not alone then
          lane.credit = 0
          behind[#behind + 1] = lane
        else
          return full -- its turn goes on with the next claim
        end
        first = first + 1
      elseif not read_all then
        load_line(math.min(bound, math.max(room, LEAST_LANES)))
      elseif #behind > 0 then
        line, behind, first, wrapped = behind, {}, 1, true
      else
        break
      end
    end
    return full
  end
  -- Writes what the turns have changed. The jobs that were taken are in their lanes' active sets by now.
  function end_turns()
    local kept, gone, closing = {}, {}, {}
    for _, lane in ipairs(met) do
      if not lane.where then lane.where = 'r' end
      if lane.where ~= 'r' then lane.credit = 0 end --!write credit-gone
      if lane.limits and lane.taken then spend(lane.limits, #lane.taken) end
      -- Its last job may have been its last allowed one.
      if lane.where == 'c' and call('EXISTS', lane.key) == 0 then lane.where = '-' end --!guard closed-empty
      if lane.where == 'c' then
        local moment = lane.ripe or shut(lane.limits, lane_active(lane.name)) or NOW
        closing[#closing + 1], closing[#closing + 2] = moment < math.huge and moment or '+inf', lane.name
      end
      local text = spell_lane(lane)
      if not text then
        gone[#gone + 1] = lane.name
      elseif text ~= lane.text then
        kept[#kept + 1], kept[#kept + 2] = lane.name, text
      end
    end
    -- First to the tail, then off the head: should the server refuse the second, no lane is lost.
    local stay = #line - first + 1
    if wrapped then
      local names = {}
      for i = first, #line do
        names[#names + 1] = line[i].name
      end
      stay, line, first = 0, names, 1
    else
      line = {}
    end
    for _, lane in ipairs(behind) do
      line[#line + 1] = lane.name
    end
    many_call('RPUSH', RING, line) --!write turn
    if loaded > stay then call('LTRIM', RING, loaded - stay, -1) end --!write leave-ring
    many_call('ZADD', CLOSED, closing) --!write close-lanes
    many_call('HSET', LANES, kept) --!write keep-lanes
    many_call('HDEL', LANES, gone) --!write forget-lanes
  end
end
