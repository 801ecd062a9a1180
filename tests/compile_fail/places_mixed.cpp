// SPDX-License-Identifier: Apache-2.0
// A rank of the epoch, a place in the group and a place in the mesh are other numbers once a member
// has gone, and in a subgroup: none is taken for another.
// expect: no match for
// expect: no viable overloaded operator[]
#include "group/membership/mesh_place.hpp"
#include "group/membership/numbered.hpp"

using tendon::GroupRank;
using tendon::detail::ByPlace;
using tendon::detail::GroupPlace;
using tendon::detail::MeshPlace;

MeshPlace use(const ByPlace<MeshPlace>& mesh_places, GroupRank rank, GroupPlace place) {
#ifdef TENDON_MUST_COMPILE
  (void)rank;
  return mesh_places[place];
#else
  (void)place;
  return mesh_places[rank];
#endif
}
